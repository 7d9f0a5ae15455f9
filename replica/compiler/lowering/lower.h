#pragma once

#include "replica/compiler/liveness/liveness.h"
#include "replica/compiler/placement/memory_plan.h"
#include "replica/device/device.h"
#include "replica/graph/graph.h"
#include "replica/machine/machine.h"
#include "replica/program/program.h"

namespace poprun {

/// What the tensors at home on one IPU claim of its memory, in tensor order; unused tensors claim
/// nothing. `tensor[i]` is whose claim `claims[i]` is.
struct MemoryClaims {
  std::vector<Claim> claims;
  std::vector<TensorId> tensor;
};

MemoryClaims claims_of(const Graph& graph, const Liveness& liveness, std::uint32_t ipu);

/// The claims on one IPU's memory, and where they are met.
struct IpuPlan {
  MemoryClaims claims;
  MemoryPlan plan;
};

/// Writes a graph with its plans, one for each IPU of a replica, down as a Program: one step an
/// operation, with its device time and the tensors that die there. Step numbers are liveness'.
Program lower(const Graph& graph, const Liveness& liveness, const std::vector<IpuPlan>& plans,
              const Device& device, const ReplicaSystem& system);

}  // namespace poprun
