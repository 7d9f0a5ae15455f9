#pragma once

#include "replica/compiler/planner/plan.h"
#include "replica/device/device.h"
#include "replica/graph/graph.h"
#include "replica/machine/machine.h"

namespace poprun {

/// Device time of a planned product. It takes its plan's cycles; regroups its input, of `input`
/// bytes, at the load rate, spread evenly; and synchronises for 2 compute sets and 3 in each serial
/// step, 4 if partial sums are added.
DeviceTime time_of_plan(const Device& device, const planner::Plan& plan, Bytes input);

/// Device time of one execution of an operation by itself: the machine's by their time face, others
/// by their plan or, if they are no products, by their operator's work, which is spread evenly.
///
/// `plan`: the operation's, or null.
DeviceTime cost_of_operation(const Device& device, const ReplicaSystem& system, const Graph& graph,
                             const Operation& operation, const planner::Plan* plan = nullptr);

}  // namespace poprun
