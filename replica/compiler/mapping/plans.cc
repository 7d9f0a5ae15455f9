#include "replica/compiler/mapping/plans.h"

#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "replica/compiler/planner/options.h"
#include "replica/ops/operator.h"

namespace poprun {
namespace {

/// The planners of this process, by what of a device they depend on.
class Planners {
 public:
  planner::Choice choose(const Device& device, const Product& product, std::int64_t permille) {
    const std::lock_guard lock(mutex_);
    const Key key{device.name, device.tiles, device.bytes_per_tile};
    return planners_.try_emplace(key, device).first->second.choose(product, permille);
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

ProductPlans plan_products(const Graph& graph, const Device& device) {
  ProductPlans plans;
  for_each_step(graph, [&](const Operation& operation, std::uint32_t step) {
    const Operator* op = find_operator(operation.kind);
    if (op == nullptr || op->product == nullptr) {
      return;
    }
    const Signature signature = signature_of(graph, operation);
    const planner::Choice choice =
        planners().choose(device, op->product(signature), permille_of(operation.attributes));
    plans.resize(step + std::size_t{1});
    plans[step] = PlannedProduct{choice.plan, op->operand_axes(signature), choice.target_met};
  });
  return plans;
}

}  // namespace poprun
