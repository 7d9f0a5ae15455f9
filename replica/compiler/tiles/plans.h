#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "replica/compiler/planner/planner.h"
#include "replica/device/device.h"
#include "replica/device/product.h"
#include "replica/graph/graph.h"

namespace poprun {

struct PlannedProduct {
  const planner::Plan* plan = nullptr;  ///< Lives as long as the process.
  OperandAxes axes;
  bool target_met = true;  ///< If false, the planner's warning must be printed.
};

/// The plan of every operation that is a product, indexed by step (liveness.h).
using ProductPlans = std::vector<std::optional<PlannedProduct>>;

/// Returns the plan of a product for a proportion of a tile's memory, in thousandths; if possible, a plan whose
/// crowding is at most most_crowding. Plans are kept for the whole process, so that compiling a variant of a job costs
/// little. Thread-safe; one thread plans at a time.
planner::Choice plan_product(const Product& product, std::int64_t permille, const Device& device);

std::optional<PlannedProduct> plan_operation(const Graph& graph, const Operation& operation, const Device& device);

ProductPlans plan_products(const Graph& graph, const Device& device);

/// Calls visit(operation, step) for all operations of a function whose first step is `step`, in the order of steps.
/// Returns the first step of the next function.
template <typename Visit>
std::uint32_t for_each_step(const Function& function, std::uint32_t step, Visit visit) {
  for (const Region& region : function.regions) {
    for (const Operation& operation : region.operations) {
      visit(operation, step++);
    }
    step += region.repeat > 1 ? 1 : 0;
  }
  return step;
}

template <typename Visit>
void for_each_step(const Graph& graph, Visit visit) {
  std::uint32_t step = 0;
  for (const Function& function : graph.functions) {
    step = for_each_step(function, step, visit);
  }
}

}  // namespace poprun
