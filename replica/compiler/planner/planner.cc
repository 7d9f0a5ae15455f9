#include "replica/compiler/planner/planner.h"

#include <algorithm>

#include "replica/compiler/planner/plan_search.h"

namespace poprun::planner {

Planner::Planner(const Device& device) : device_(device) {}

const std::vector<Plan>& Planner::plans(const Product& product) {
  const auto known = plans_.find(product);
  return known != plans_.end() ? known->second
                               : plans_.emplace(product, find_plans(product, target(product.arithmetic))).first->second;
}

Choice Planner::choose(const Product& product, std::int64_t permille, const std::function<bool(const Plan&)>& suits) {
  const std::vector<Plan>& all = plans(product);
  const Bytes bound = target(product.arithmetic).share(permille);
  const auto is_suitable = [&suits](const Plan& plan) { return !suits || suits(plan); };
  const auto fastest =
      std::ranges::find_if(all, [&](const Plan& plan) { return plan.temporary_bytes() <= bound && is_suitable(plan); });
  if (fastest != all.end()) {
    return {.plan = &*fastest, .target_met = true};
  }
  const auto smallest = std::find_if(all.rbegin(), all.rend(), is_suitable);
  return {.plan = smallest == all.rend() ? &all.back() : &*smallest, .target_met = permille == 0};
}

}  // namespace poprun::planner
