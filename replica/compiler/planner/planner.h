#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "replica/compiler/planner/plan.h"
#include "replica/compiler/planner/vertex.h"
#include "replica/device/device.h"
#include "replica/device/product.h"

namespace poprun::planner {

/// The warning that Poplar's planner prints if no plan meets the target, verbatim (Graphcore, Memory and Performance
/// Optimisation on the IPU, section 2.1).
inline constexpr std::string_view kMemoryTargetWarning =
    "PL:POPLIN [W] Warning: convolution planner unable to meet memory target. Optimising for "
    "minimum memory.";

struct Choice {
  const Plan* plan = nullptr;  ///< Lives as long as the Planner.
  bool target_met = true;      ///< If false, kMemoryTargetWarning must be printed.
};

/// Plans products on one device. Finds and keeps, once per product, all plans that are best for some share of memory.
/// Not thread-safe. Deterministic: the same product and device give the same plan.
class Planner {
 public:
  explicit Planner(const Device& device);

  /// Returns the fastest plan whose temporary bytes on the busiest tile are at most `permille` thousandths of its
  /// memory. If there is none, returns the plan with the fewest temporary bytes, with target_met false. A `permille` of
  /// 0 asks for the fewest bytes, so the target is always met (poplibs, lib/poplin/ConvPlan.cpp). If `suits` accepts
  /// at least one plan, considers only accepted plans. More memory never gives a slower plan.
  Choice choose(const Product& product, std::int64_t permille, const std::function<bool(const Plan&)>& suits = {});

  /// Returns every plan that choose() can return, sorted by increasing cycles and decreasing temporary bytes.
  const std::vector<Plan>& plans(const Product& product);

  [[nodiscard]] Target target(Arithmetic arithmetic) const { return target_of(device_, arithmetic); }

  [[nodiscard]] std::size_t products() const { return plans_.size(); }

 private:
  Device device_;
  std::unordered_map<Product, std::vector<Plan>, ProductHash> plans_;
};

}  // namespace poprun::planner
