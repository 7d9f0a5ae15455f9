#pragma once

#include "replica/compiler/addresses/demand.h"
#include "replica/compiler/addresses/memory_plan.h"
#include "replica/compiler/addresses/tile_plan.h"
#include "replica/compiler/job/pass.h"
#include "replica/compiler/lives/aliases.h"
#include "replica/compiler/lives/liveness.h"
#include "replica/device/device.h"
#include "replica/graph/graph.h"
#include "replica/machine/machine.h"
#include "replica/program/program.h"

namespace poprun {

/// Claims of one IPU's tensors on one of its memories, in tensor order; unused tensors claim nothing. `claims[i]`
/// belongs to `tensor[i]`. The claim of an alias contains its offset in its block.
struct MemoryClaims {
  std::vector<Claim> claims;
  std::vector<TensorId> tensor;
};

MemoryClaims claims_of(const Graph& graph, const Liveness& liveness, std::uint32_t ipu, const Aliases& aliases = {},
                       Memory memory = Memory::kInProcessor);

/// The memory plans of one IPU: for its tensors' images, its Streaming Memory and its tiles.
struct IpuPlan {
  MemoryClaims claims;
  MemoryPlan plan;
  MemoryClaims remote_claims;
  MemoryPlan remote_plan;
  TileClaims tile_claims;
  TilePlan tiles;
};

/// Lowers a graph, with its plans for each IPU of a replica, to a Program: one step per operation, with its device time
/// and the tensors that die there. A view takes no time unless it is on different tiles from its operand. A tensor
/// is not released if a different tensor takes over its bytes. Steps are numbered as in liveness.h. `parts` are keyed
/// by function name.
Program lower(const LaidOut& laid_out, const std::vector<IpuPlan>& plans, const ReplicaSystem& system,
              const StageParts& parts);

/// Adds the layout of every tile's bytes, which the Program needs for execution at these addresses and for reports.
void add_layouts(const std::vector<IpuPlan>& plans, Program& program);

}  // namespace poprun
