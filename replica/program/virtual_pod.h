#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "proto/profile.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/units.h"
#include "replica/program/program.h"
#include "replica/program/timeline.h"

namespace poprun {

/// Replicas are at most 1,000 times slower than usual.
inline constexpr Pace kSlowestPace = 1000 * kUsualPace;

/// The device clock of a job on a Pod whose replicas are not all alike (--what-if).
///
///   replica 0   | own work |    idle     | all-reduce | own work ..
///   replica 37  | own work, 1.3 x longer | all-reduce | own work ..
///
/// Replicas wait for each other in every exchange, and a disturbance stretches all of a replica's own work in a step by
/// one factor. So in each step, the replica with the largest factor comes last to every exchange, and its timeline is
/// that of the step. Replicas with equal factors form a class, of which only the slowest matters: if factors vary at
/// random, the largest of n is drawn from the distribution of maxima, F(x)^n. The cost therefore does not depend on the
/// number of replicas, but on that of classes. tests/unit/replica/program/virtual_pod_test.cc compares this with a
/// simulation of every replica.
///
/// After a loss in step s, the job loses the time of step s, WhatIf.detection_seconds, Loss.restart_seconds, function
/// "load", which fetches the weights and the state, and the steps since the last checkpoint, which take as long as they
/// did before.
///
/// Deterministic: all draws are functions of the seed and the step.
class VirtualPod {
 public:
  /// `program` must outlive this.
  VirtualPod(const Program& program, proto::WhatIf what_if, std::uint32_t replicas, std::uint64_t seed);

  /// Returns the device time of a call of a function. Disturbances affect function "train" only, for which `step`
  /// counts from 1; its time includes what a loss in this step costs. Cost: one walk for each new pace.
  Cycles time_of(std::string_view function, std::uint64_t step);

  /// Returns the pace of the slowest replica in a step, at most kSlowestPace.
  [[nodiscard]] Pace pace(std::uint64_t step) const;

  /// Returns the times of a job of `steps` steps with `samples` samples each, and a host call of `call_seconds` in
  /// each.
  proto::DisturbedTime job(std::uint64_t steps, std::uint64_t samples, double call_seconds);

 private:
  [[nodiscard]] Cycles step_alone(std::uint64_t step);
  struct Lost {
    Cycles time;
    std::uint64_t repeated_steps = 0;
    std::uint32_t losses = 0;
  };
  Lost lost_in(std::uint64_t step);
  Cycles walk_of(std::string_view function, Pace pace);

  const Program& program_;
  proto::WhatIf what_if_;
  std::uint32_t replicas_;
  std::uint64_t key_;
  std::map<std::pair<std::string, Pace>, Cycles> walks_;
};

}  // namespace poprun
