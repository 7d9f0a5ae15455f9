#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "launcher/verdict/job_state.h"

namespace poprun::launcher {

/// A job of four replicas on two hosts, whose instances all joined at second 10.
class JoinedJob : public ::testing::Test {
 protected:
  static JobState joined(std::uint32_t instances = 4) {
    proto::Topology topology;
    topology.set_num_replicas(4);
    topology.set_num_instances(instances);
    topology.set_ipus_per_replica(1);
    const std::vector<Host> hosts = {{"node0"}, {"node1"}};
    JobState state(*place(topology, hosts), 0);
    for (std::uint32_t i = 0; i < instances; ++i) {
      EXPECT_TRUE(state.join(request(i), 10));
    }
    return state;
  }

  static proto::JoinRequest request(std::uint32_t instance) {
    proto::JoinRequest request;
    request.set_instance(instance);
    request.set_host(instance < 2 ? "node0" : "node1");
    request.set_pid(100 + instance);
    request.set_version(POPRUN_VERSION);
    return request;
  }

  static void beat(JobState& state, std::uint32_t replica, std::uint64_t step, const std::string& activity, double now,
                   std::uint32_t per_instance = 1) {
    proto::Beat beat;
    beat.set_instance(replica / per_instance);
    proto::ReplicaProgress& progress = *beat.add_replicas();
    progress.set_replica(replica);
    progress.set_step(step);
    progress.set_activity(activity);
    progress.set_activity_seconds(1);
    state.beat(beat, now);
  }
};

}  // namespace poprun::launcher
