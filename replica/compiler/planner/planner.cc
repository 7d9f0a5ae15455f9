#include "replica/compiler/planner/planner.h"

#include <algorithm>

#include "replica/compiler/planner/search.h"

namespace poprun::planner {

Planner::Planner(const Device& device) : device_(device) {}

const std::vector<Plan>& Planner::plans(const Product& product) {
  const auto known = plans_.find(product);
  return known != plans_.end()
             ? known->second
             : plans_.emplace(product, find_plans(product, target(product.arithmetic)))
                   .first->second;
}

Choice Planner::choose(const Product& product, std::int64_t permille) {
  const std::vector<Plan>& all = plans(product);
  const Bytes bound = target(product.arithmetic).share(permille);
  const auto fits = [bound](const Plan& plan) { return plan.temporary_bytes() <= bound; };
  const auto fastest = std::ranges::find_if(all, fits);
  if (fastest == all.end()) {
    return {.plan = &all.back(), .target_met = permille == 0};
  }
  return {.plan = &*fastest, .target_met = true};
}

}  // namespace poprun::planner
