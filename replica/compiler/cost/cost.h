#pragma once

#include <cstdint>

#include "replica/device/device.h"
#include "replica/graph/graph.h"

namespace poprun {

/// Whom an operation's exchange runs over.
struct ReplicaSystem {
  std::int64_t replicas = 1;
  std::int64_t ipus_per_replica = 1;
};

/// Device time of one execution of an operation: host streams by their bytes, exchanges between
/// replicas by the ring formula, everything else by its operator's work face.
DeviceTime cost_of_operation(const Device& device, const ReplicaSystem& system, const Graph& graph,
                             const Operation& operation);

}  // namespace poprun
