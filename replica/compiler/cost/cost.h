#pragma once

#include "replica/device/device.h"
#include "replica/graph/graph.h"
#include "replica/machine/machine.h"

namespace poprun {

/// Device time of one execution of an operation by itself: the machine's by their time face, others
/// by their operator's work.
DeviceTime cost_of_operation(const Device& device, const ReplicaSystem& system, const Graph& graph,
                             const Operation& operation);

}  // namespace poprun
