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

/// Claims of the tensors of one IPU on one of its memories, in tensor order; unused tensors claim nothing.
/// `tensor[i]` is whose claim `claims[i]` is; aliases claim their places in their blocks.
struct MemoryClaims {
  std::vector<Claim> claims;
  std::vector<TensorId> tensor;
};

MemoryClaims claims_of(const Graph& graph, const Liveness& liveness, std::uint32_t ipu, const Aliases& aliases = {},
                       Memory memory = Memory::kInProcessor);

/// One IPU: where its tensors' images are, what lies in its Streaming Memory, and what on its tiles.
struct IpuPlan {
  MemoryClaims claims;
  MemoryPlan plan;
  MemoryClaims remote_claims;
  MemoryPlan remote_plan;
  TileClaims tile_claims;
  TilePlan tiles;
};

/// Writes a graph with its plans, one for each IPU of a replica, down as a Program: one step an operation, with its
/// device time and the tensors that die there. A view takes no time unless it lies on other tiles than its operand.
/// A tensor whose bytes another one takes over is not released. Step numbers are liveness'.
/// `parts`: by function, as Job's.
Program lower(const LaidOut& laid_out, const std::vector<IpuPlan>& plans, const ReplicaSystem& system,
              const StageParts& parts);

/// Adds where every byte of every tile lies: for the Program to be executed there, or reported on.
void add_layouts(const std::vector<IpuPlan>& plans, Program& program);

}  // namespace poprun
