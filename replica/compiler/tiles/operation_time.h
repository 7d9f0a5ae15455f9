#pragma once

#include "replica/compiler/planner/plan.h"
#include "replica/compiler/tiles/moves.h"
#include "replica/compiler/tiles/plans.h"
#include "replica/device/device.h"
#include "replica/graph/graph.h"
#include "replica/machine/machine.h"

namespace poprun {

/// Returns the device time of a planned product whose operands are mapped as its tiles read them. The product takes its
/// plan's cycles. In addition, it regroups its input (`input` bytes, spread evenly) at the load rate. It synchronises
/// and calls 2 compute sets, and 3 more per serial step, or 4 more if partial sums are added. It starts one exchange,
/// and one more per serial step, or 2 more if partial sums are added.
DeviceTime time_of_plan(const Device& device, const planner::Plan& plan, Bytes input);

/// Returns the device time of one execution of an operation by itself:
///
///   products    time_of_plan, and the exchange of operands with a different mapping
///   operators   their work, as if every tile did as much as the fullest tile, which has the most
///               elements of Moves::home; and the exchange of tensors with a different mapping, or
///               the exchange that the operator itself reports, whichever takes longer
///   machine     the time of their cost model; for stashes, restores and copies within an IPU, that of
///               operators that read and write the same elements; for transfers through I/O tiles,
///               that of through_io_tiles
///
/// Tensors are exchanged one after the other; the tile that receives the most of a tensor determines how long that
/// takes. These exchanges are the exchange phase of the first compute set and need no further synchronisation.
///
/// `planned` is the operation's plan, or null. `moves` is null if mappings are not known yet; in that case, all tensors
/// are assumed to be spread evenly, and nothing is moved.
DeviceTime cost_of_operation(const Device& device, const ReplicaSystem& system, const Graph& graph,
                             const Operation& operation, const PlannedProduct* planned = nullptr,
                             Moves* moves = nullptr);

/// Returns the device time of a view. Since it aliases its operands, it only moves tensors with a different mapping, in
/// a separate exchange.
DeviceTime cost_of_view(const Device& device, const Operation& operation, Moves& moves);

}  // namespace poprun
