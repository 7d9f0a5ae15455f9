#pragma once

#include "replica/compiler/liveness/liveness.h"
#include "replica/compiler/placement/memory_plan.h"
#include "replica/device/device.h"
#include "replica/graph/graph.h"
#include "replica/machine/machine.h"
#include "replica/program/program.h"

namespace poprun {

/// Every tensor's claim on memory, in tensor order; unused tensors have none. `tensor[i]` is whose
/// claim `intervals[i]` is.
struct MemoryClaims {
  std::vector<LiveInterval> intervals;
  std::vector<TensorId> tensor;
};

MemoryClaims claims_of(const Graph& graph, const Liveness& liveness);

/// Writes a graph with its plans down as a Program: one step an operation, with its device time and
/// the tensors that die there. Step numbers are liveness'.
Program lower(const Graph& graph, const Liveness& liveness, const MemoryClaims& claims,
              const MemoryPlan& plan, const Device& device, const ReplicaSystem& system);

}  // namespace poprun
