#include "replica/compiler/tiles/plans.h"

#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "replica/compiler/planner/product_options.h"
#include "replica/compiler/tiles/product_layout.h"
#include "replica/ops/face/operator.h"

namespace poprun {
namespace {

/// The planners of this process, keyed by the device properties that plans depend on.
class Planners {
 public:
  planner::Choice choose(const Device& device, const Product& product, std::int64_t permille) {
    const std::lock_guard lock(mutex_);
    const Key key{device.name, device.tiles, device.bytes_per_tile};
    return planners_.try_emplace(key, device)
        .first->second.choose(product, permille, [&device](const planner::Plan& plan) {
          return crowding_of(plan) <= most_crowding(device.bytes_per_tile);
        });
  }

 private:
  using Key = std::tuple<std::string, std::int64_t, Bytes>;

  std::mutex mutex_;
  std::map<Key, planner::Planner> planners_;
};

Planners& planners() {
  static Planners all;
  return all;
}

}  // namespace

planner::Choice plan_product(const Product& product, std::int64_t permille, const Device& device) {
  return planners().choose(device, product, permille);
}

std::optional<PlannedProduct> plan_operation(const Graph& graph, const Operation& operation, const Device& device) {
  const Operator* op = find_operator(operation.kind);
  if (op == nullptr || op->product == nullptr) {
    return std::nullopt;
  }
  const Signature signature = signature_of(graph, operation);
  const planner::Choice choice = plan_product(op->product(signature), permille_of(operation.attributes), device);
  return PlannedProduct{choice.plan, op->operand_axes(signature), choice.target_met};
}

ProductPlans plan_products(const Graph& graph, const Device& device) {
  ProductPlans plans;
  for_each_step(graph, [&](const Operation& operation, std::uint32_t step) {
    if (std::optional<PlannedProduct> planned = plan_operation(graph, operation, device)) {
      plans.resize(step + std::size_t{1});
      plans[step] = std::move(planned);
    }
  });
  return plans;
}

}  // namespace poprun
