#pragma once

#include <cstdint>
#include <vector>

#include "replica/compiler/addresses/tile_plan.h"
#include "replica/compiler/lives/aliases.h"
#include "replica/compiler/lives/liveness.h"
#include "replica/compiler/tiles/plans.h"
#include "replica/device/device.h"
#include "replica/graph/graph.h"
#include "replica/program/mapping.h"

namespace poprun {

struct LaidOut {
  const Graph& graph;
  const Liveness& liveness;
  const ProductPlans& plans;
  const Aliases& aliases;
  const std::vector<Mapping>& mappings;  ///< Indexed by tensor.
  const Device& device;
  std::int64_t replicas = 1;
};

/// Computes all claims of a graph on the tiles of one IPU. The function "load" claims only its tensors, because the
/// host computes the initial values.
///
///   tensors            on their tiles, for their live ranges; aliases of the same bytes count once
///   a product          while it runs: the input and weights that its tiles receive; partial sums
///                      (twice if its steps add to them); the regrouped input, spread evenly; with
///                      several steps, the weights twice, spread evenly; with one step, the weights
///                      if they are mapped differently; and kGap
///   other operations   while they run: operands that are mapped differently (compiler/tiles/moves.h)
///   host streams       while they run: a buffer for the largest of their tensors, spread evenly;
///                      the same holds for copies, stashes and restores to and from Streaming
///                      Memory. If there are I/O tiles, only they hold buffers, for the whole run:
///                      one for the largest transfer in and one for the largest transfer out (while
///                      weights are saved, the largest weight); the other tiles receive the bytes
///                      directly into the tensors
///   copies             from other IPUs, while they run: a buffer for each tensor, spread evenly
///   all-reduces        over several replicas, while they run (in the background: while their
///                      largest tensor is live): a buffer for the part of that tensor that is sent
///                      around the ring at a time (its bytes / replicas), spread evenly; tensors are
///                      reduced one at a time, because PopART does not merge them by default [D]
///   scatters, gathers  of shards, while they run: the same buffer, for one pass around the ring
///   code               for the whole run: kVertexCode; kControlCode per step (except views);
///                      kVertexState for each product, on the tiles that it uses; and 4 B per kMessage,
///                      rounded up, that a tile receives. I/O tiles hold kControlCode per transfer and
///                      the code to receive
///
/// Sizes that Poplar does not publish are round numbers. They are chosen so that the example of Graphcore's note has
/// 250 MB that are always live, as the report in the note shows, and so that the MLPerf jobs, which ran in
/// reality, fit: see planner/README.md.
TileClaims demand_on_tiles(const LaidOut& laid_out, std::uint32_t ipu);

inline constexpr Bytes kVertexCode{28672};
inline constexpr Bytes kControlCode{32};
inline constexpr Bytes kVertexState{128};
inline constexpr Bytes kMessage{512};

/// Returns the bytes of exchange code that a tile needs to receive `bytes`.
constexpr std::int64_t code_to_receive(std::int64_t bytes) {
  return 4 * ((bytes + kMessage.count() - 1) / kMessage.count());
}

/// Bytes left unused because of placement constraints on a product's operands (Graphcore, Memory and Performance
/// Optimisation on the IPU, figure 2.7).
inline constexpr Bytes kGap{28672};

}  // namespace poprun
