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

/// A graph, planned and laid out.
struct LaidOut {
  const Graph& graph;
  const Liveness& liveness;
  const ProductPlans& plans;
  const Aliases& aliases;
  const std::vector<Mapping>& mappings;  ///< By tensor.
  const Device& device;
  std::int64_t replicas = 1;
};

/// All that a graph claims on the tiles of one IPU. Function "load" claims no more than its tensors: initial values are
/// the host's to make.
///
///   tensors            as they are mapped, for their lives; those that lie in the same bytes once
///   a product          while it runs: what its tiles receive of input and weights, partial sums
///                      (once more if its steps add to them), the input regrouped and, for several
///                      steps, the weights twice, both spread evenly; for one step weights that lie
///                      elsewhere; and kGap
///   other operations   while they run: operands that lie elsewhere (compiler/mapping/moves.h)
///   host streams       while they run: a buffer for the largest of their tensors, spread evenly;
///                      so have copies, stashes and restores to and from Streaming Memory.
///                      With I/O tiles, these alone have for the whole run a buffer for the bytes
///                      of the largest transfer in and one for those of the largest out (when
///                      weights are saved, of the largest weight), and the other tiles receive
///                      them into the tensors
///   copies             from other IPUs, while they run: a buffer for each tensor, spread evenly
///   all-reduces        over several replicas, while they run, in the background as long as their
///                      largest tensor lives: a buffer for what that one sends round a ring at
///                      once, its bytes / replicas, spread evenly; one tensor follows the other, as
///                      PopART merges none by default [D]
///   scatters, gathers  of shards, while they run: the same for one way round
///   code               for the whole run: kVertexCode; kControlCode a step (views are none);
///                      kVertexState a product on its tiles; and for what a tile receives 4 B for
///                      every kMessage begun. I/O tiles have kControlCode a transfer, and what they
///                      receive
///
/// Sizes that Poplar does not publish are round numbers with which the example of Graphcore's note has the
/// 250 MB always live that its report shows: see planner/README.md.
TileClaims demand_on_tiles(const LaidOut& laid_out, std::uint32_t ipu);

inline constexpr Bytes kVertexCode{16384};
inline constexpr Bytes kControlCode{128};
inline constexpr Bytes kVertexState{128};
inline constexpr Bytes kMessage{512};

/// Exchange code with which a tile receives so many bytes.
constexpr std::int64_t code_to_receive(std::int64_t bytes) {
  return 4 * ((bytes + kMessage.count() - 1) / kMessage.count());
}

/// Bytes that placement constraints of a product's operands leave unused (Graphcore, Memory and Performance
/// Optimisation on the IPU, figure 2.7).
inline constexpr Bytes kGap{32768};

}  // namespace poprun
