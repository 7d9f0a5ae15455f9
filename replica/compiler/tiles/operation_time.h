#pragma once

#include "replica/compiler/planner/plan.h"
#include "replica/compiler/tiles/moves.h"
#include "replica/compiler/tiles/plans.h"
#include "replica/device/device.h"
#include "replica/graph/graph.h"
#include "replica/machine/machine.h"

namespace poprun {

/// Device time of a planned product whose operands lie as its tiles read them. It takes its plan's cycles; regroups its
/// input, of `input` bytes, at the load rate, spread evenly; and synchronises for 2 compute sets and 3 in each serial
/// step, 4 if partial sums are added.
DeviceTime time_of_plan(const Device& device, const planner::Plan& plan, Bytes input);

/// Device time of one execution of an operation by itself:
///
///   products    time_of_plan, and the exchange of operands that lie otherwise
///   operators   their work as if every tile did as much as the fullest one, which has the most
///               elements of Moves::home; and the exchange of what lies elsewhere, or of what the
///               operator says that it exchanges, whichever is more
///   machine     by their time face; stashes, restores and copies within an IPU as operators that
///               read and write their elements; what I/O tiles can do as they do it
///               (through_io_tiles)
///
/// An exchange takes as long as the tile that receives most, one tensor after the other. It is the exchange phase of
/// the first compute set, so it needs no synchronisation of its own.
///
/// `planned`: the operation's plan, or null. `moves`: null if mappings are not known yet; then everything is spread
/// evenly and nothing lies elsewhere.
DeviceTime cost_of_operation(const Device& device, const ReplicaSystem& system, const Graph& graph,
                             const Operation& operation, const PlannedProduct* planned = nullptr,
                             Moves* moves = nullptr);

/// Device time of a view: its bytes are its operands'. What lies on other tiles nevertheless is sent there in an
/// exchange of its own; else it takes no time.
DeviceTime cost_of_view(const Device& device, const Operation& operation, Moves& moves);

}  // namespace poprun
