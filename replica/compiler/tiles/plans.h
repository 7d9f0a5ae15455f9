#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "replica/compiler/planner/planner.h"
#include "replica/device/device.h"
#include "replica/device/product.h"
#include "replica/graph/graph.h"

namespace poprun {

/// How one operation's product is spread over the tiles.
struct PlannedProduct {
  const planner::Plan* plan = nullptr;  ///< Lives as long as the process.
  OperandAxes axes;
  bool target_met = true;  ///< False: the planner's warning is due.
};

/// The plan of every operation that is a product, by step, in the order of liveness.h.
using ProductPlans = std::vector<std::optional<PlannedProduct>>;

/// The plan of a product for a proportion of a tile's memory, in thousandths, and where there is one with no more
/// crowding than most_crowding. What one process has planned is kept, so that compiling a variant of a job costs
/// little. threads: any; one plans at a time.
planner::Choice plan_product(const Product& product, std::int64_t permille, const Device& device);

/// The plan of an operation's product; nothing if it is none.
std::optional<PlannedProduct> plan_operation(const Graph& graph, const Operation& operation, const Device& device);

/// Plans all products of a graph.
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

/// The same for all functions of a graph.
template <typename Visit>
void for_each_step(const Graph& graph, Visit visit) {
  std::uint32_t step = 0;
  for (const Function& function : graph.functions) {
    step = for_each_step(function, step, visit);
  }
}

}  // namespace poprun
