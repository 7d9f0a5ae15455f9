#include "replica/compiler/techniques/stages/balance.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "replica/base/error.h"
#include "replica/compiler/tiles/operation_time.h"
#include "replica/compiler/tiles/plans.h"
#include "replica/device/product.h"
#include "replica/ops/face/operator.h"

namespace poprun {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

struct Best {
  std::int64_t largest = kNever;      ///< The largest cost of any stage.
  std::vector<std::size_t> begins{};  ///< First layers of all stages except the first.
};

/// Finds the split that minimises the maximum `cost` of a stage. A stage whose cost is kNever is not allowed.
///
///   best[s + 1][end] = min over begin of max(best[s][begin], cost(s, begin, end))
template <typename Cost>
Best minimise(std::size_t layers, std::size_t stages, Cost cost) {
  using Row = std::vector<std::int64_t>;
  std::vector<Row> best(stages + 1, Row(layers + 1, kNever));
  std::vector<std::vector<std::size_t>> from(stages + 1, std::vector<std::size_t>(layers + 1));
  best[0][0] = std::numeric_limits<std::int64_t>::min();
  for (std::size_t s = 0; s < stages; ++s) {
    for (std::size_t end = s + 1; end <= layers; ++end) {
      for (std::size_t begin = s; begin < end; ++begin) {
        const std::int64_t largest = std::max(best[s][begin], cost(s, begin, end));
        if (largest < best[s + 1][end]) {
          best[s + 1][end] = largest;
          from[s + 1][end] = begin;
        }
      }
    }
  }
  Best found{best[stages][layers]};
  std::size_t end = layers;
  for (std::size_t s = stages; s > 1; --s) {
    end = from[s][end];
    found.begins.insert(found.begins.begin(), end);
  }
  return found;
}

/// Returns whether a split exceeds the memory by over a quarter, which is more than another split is expected to save.
bool is_hopeless(const Balancing& balancing, const MeasuredSplit& split) {
  const Bytes needed = std::accumulate(split.peaks.begin(), split.peaks.end(), Bytes{});
  const Bytes had = balancing.capacity * static_cast<std::int64_t>(split.peaks.size());
  return needed.count() * 4 > had.count() * 5;
}

std::size_t begin_of(const MeasuredSplit& split, std::size_t stage) {
  return stage == 0 ? 0 : split.begins[stage - 1];
}

std::size_t end_of(const MeasuredSplit& split, std::size_t stage, std::size_t layers) {
  return stage == split.begins.size() ? layers : split.begins[stage];
}

Arithmetic arithmetic_of(const LayerUse& use) {
  return !use.half ? Arithmetic::kF32 : use.half_partials ? Arithmetic::kF16PartialsF16 : Arithmetic::kF16;
}

Cycles planned_cycles(const Product& product, const LayerUse& use) {
  const planner::Plan& plan = *plan_product(product, use.permille, use.device).plan;
  const Bytes input = element_bytes(product.arithmetic) * product.input_elements();
  return time_of_plan(use.device, plan, input).total();
}

Cycles product_cycles(Product product, bool has_input_gradient, const LayerUse& use) {
  product.arithmetic = arithmetic_of(use);
  Cycles cycles = planned_cycles(product, use);
  if (use.training) {
    cycles += planned_cycles(weight_gradient(product), use);
    cycles += has_input_gradient ? planned_cycles(input_gradient(product), use) : Cycles{0};
  }
  return cycles;
}

Cycles cycles_of(const Graph& graph, const Operation& operation, const LayerUse& use) {
  const Operator* op = find_operator(operation.kind);
  if (op == nullptr) {
    return Cycles{0};
  }
  const Signature signature = signature_of(graph, operation);
  if (op->product != nullptr) {
    const bool from_host = graph.tensor(operation.inputs[0]).role == Role::kStream;
    return product_cycles(op->product(signature), !from_host, use);
  }
  Work work = op->work(signature);
  work.arithmetic = arithmetic_of(use);
  if (use.half) {
    work.memory_traffic = Bytes{work.memory_traffic.count() / 2};
    work.exchanged = Bytes{work.exchanged.count() / 2};
  }
  return time_of_work(use.device, work).total() * (use.training ? 3 : 1);
}

}  // namespace

// Minimises the excess first, then the cycles of stages within that excess, then the bytes of stages within both. One
// pass with all three criteria would be wrong, because a prefix of the best split need not be the best one.
std::vector<std::size_t> balance(const Balancing& balancing, std::span<const MeasuredSplit> measured) {
  const std::size_t layers = balancing.layers.size();
  const std::size_t stages = balancing.in_flight.size();
  POPRUN_CHECK(stages > 0 && stages <= layers);
  const StageBytes bytes(balancing, measured);
  std::vector<std::int64_t> first_cycles = {0};  // Sums over the first 0, 1, ... layers.
  for (const LayerWeight& layer : balancing.layers) {
    first_cycles.push_back(first_cycles.back() + layer.cycles.count());
  }
  const auto cycles_of = [&](std::size_t stage, std::size_t begin, std::size_t end) {
    const std::int64_t once = first_cycles[end] - first_cycles[begin];
    const bool again = stage < balancing.recomputes.size() && balancing.recomputes[stage];
    return once + (again ? once / 3 : 0);
  };
  const auto excess_of = [&](std::size_t stage, std::size_t begin, std::size_t end) {
    return std::max<std::int64_t>(bytes(stage, begin, end) - balancing.capacity.count(), 0);
  };
  const std::int64_t excess = minimise(layers, stages, excess_of).largest;
  const std::int64_t cycles = minimise(layers, stages, [&](std::size_t stage, std::size_t begin, std::size_t end) {
                                return excess_of(stage, begin, end) <= excess ? cycles_of(stage, begin, end) : kNever;
                              }).largest;
  return minimise(layers, stages,
                  [&](std::size_t stage, std::size_t begin, std::size_t end) {
                    return excess_of(stage, begin, end) <= excess && cycles_of(stage, begin, end) <= cycles
                               ? bytes(stage, begin, end)
                               : kNever;
                  })
      .begins;
}

std::optional<std::vector<std::size_t>> next_split(const Balancing& balancing,
                                                   std::span<const MeasuredSplit> measured) {
  using Begins = std::vector<std::size_t>;
  if (is_hopeless(balancing, measured.back())) {
    return std::nullopt;
  }
  const auto known = [&](const Begins& begins) { return std::ranges::find(measured, begins, &MeasuredSplit::begins); };
  const Begins balanced = balance(balancing, measured);
  if (known(balanced) == measured.end()) {
    return balanced;
  }
  const StageBytes bytes(balancing, measured);
  std::int64_t least = kNever;
  std::optional<Begins> best;
  for (std::size_t k = 0; k < balanced.size(); ++k) {
    for (const std::size_t begin : {balanced[k] - 1, balanced[k] + 1}) {
      Begins bounds = balanced;
      bounds[k] = begin;
      if (known(bounds) != measured.end()) {
        continue;
      }
      const Begins beside = bounds;
      bounds.insert(bounds.begin(), 0);
      bounds.push_back(balancing.layers.size());
      if (std::ranges::adjacent_find(bounds, std::greater_equal{}) != bounds.end()) {
        continue;  // A stage would be empty.
      }
      std::int64_t fullest = 0;
      for (std::size_t s = 0; s <= balanced.size(); ++s) {
        fullest = std::max(fullest, bytes(s, bounds[s], bounds[s + 1]));
      }
      if (fullest < least) {
        least = fullest;
        best = beside;
      }
    }
  }
  return best;
}

StageBytes::StageBytes(const Balancing& balancing, std::span<const MeasuredSplit> measured)
    : measured_(measured), corrections_(balancing.in_flight.size()) {
  for (const LayerWeight& layer : balancing.layers) {
    bytes_.push_back(bytes_.back() + layer.bytes.count());
    activations_.push_back(activations_.back() + layer.activations.count());
  }
  if (measured.empty()) {
    return;
  }
  const MeasuredSplit& latest = measured.back();
  for (std::size_t stage = 0; stage < corrections_.size(); ++stage) {
    const std::size_t begin = begin_of(latest, stage);
    const std::size_t end = end_of(latest, stage, balancing.layers.size());
    const std::int64_t missing = latest.peaks[stage].count() - estimate({}, begin, end);
    const std::int64_t activations = activations_[end] - activations_[begin];
    Correction& correction = corrections_[stage];
    if (activations > 0) {
      correction.rate = std::clamp(static_cast<double>(missing) / static_cast<double>(activations), 0.0,
                                   static_cast<double>(balancing.in_flight[stage]));
    }
    correction.rest = latest.peaks[stage].count() - estimate(correction, begin, end);
  }
}

std::int64_t StageBytes::operator()(std::size_t stage, std::size_t begin, std::size_t end) const {
  const auto same = std::ranges::find_if(measured_, [&](const MeasuredSplit& split) {
    return begin_of(split, stage) == begin && end_of(split, stage, bytes_.size() - 1) == end;
  });
  return same == measured_.end() ? estimate(corrections_[stage], begin, end) : same->peaks[stage].count();
}

std::int64_t StageBytes::estimate(const Correction& correction, std::size_t begin, std::size_t end) const {
  const auto activations = static_cast<double>(activations_[end] - activations_[begin]);
  return bytes_[end] - bytes_[begin] + std::llround(correction.rate * activations) + correction.rest;
}

std::vector<LayerWeight> layer_weights(const ForwardPass& forward, const LayerUse& use) {
  const Graph& graph = forward.graph;
  std::vector<LayerWeight> weights(graph.layers.size());
  std::set<std::pair<std::int32_t, TensorId>> used;
  std::set<TensorId> owned;
  for (const Operation& operation : forward.operations()) {
    const std::int32_t layer = operation.origin.layer;
    if (layer == kNoLayer) {
      continue;
    }
    LayerWeight& weight = weights[static_cast<std::size_t>(layer)];
    weight.cycles += cycles_of(graph, operation, use);
    for (const TensorId id : operation.outputs) {
      weight.activations += Bytes{graph.tensor(id).type.elements() * (use.half ? 2 : 4)};
    }
    for (const TensorId id : operation.inputs) {
      if (graph.tensor(id).role != Role::kParameter || !used.emplace(layer, id).second) {
        continue;
      }
      const std::int64_t state = use.training && owned.insert(id).second ? use.state_bytes : 0;
      const std::int64_t bytes = (use.half ? 2 : 4) * (use.training ? 2 : 1) + state;
      weight.bytes += Bytes{graph.tensor(id).type.elements() * bytes};
    }
  }
  return weights;
}

}  // namespace poprun
