#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "replica/models/layers/shapes.h"
#include "replica/models/onnx/node.h"

/// Reductions over axes, and the positions of extreme elements.
namespace poprun::onnx_import::nodes::reduction {
namespace {

using Proto = ::onnx::TensorProto;

using layers::Reduction;

/// Returns the dimensions to reduce, sorted and counted from 0; empty if nothing is reduced.
Result<Shape> axes_of(Node& node) {
  const std::size_t rank = node.shape(0).size();
  POPRUN_ASSIGN(const auto given, node.integers_from("axes", 1));
  std::vector<bool> reduced(rank, false);
  for (const std::int64_t axis : given.value_or(Shape{})) {
    POPRUN_ASSIGN(const std::size_t at, normal_axis(axis, rank));
    reduced[at] = true;
  }
  if ((!given || given->empty()) && node.integer("noop_with_empty_axes", 0) == 0) {
    reduced.assign(rank, true);
  }
  Shape axes;
  for (std::size_t d = 0; d < rank; ++d) {
    if (reduced[d]) {
      axes.push_back(static_cast<std::int64_t>(d));
    }
  }
  return axes;
}

/// Folds all integers of a one-dimensional input into one, for shape arithmetic.
Status fold_all(Node& node, std::int64_t (*function)(std::int64_t, std::int64_t)) {
  const auto values = node.value(0).constant->all_integers();
  const std::int64_t total = std::accumulate(values.begin() + 1, values.end(), values.front(), function);
  node.set(0, Constant::of_integers({total}, node.integer("keepdims", 1) != 0 ? Shape{1} : Shape{}));
  return {};
}

/// Returns the result of a reduction of no elements. A mean of none is not defined.
std::optional<double> result_of_none(Reduction reduction) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (reduction) {
    case Reduction::kMax:
    case Reduction::kLogSum:
    case Reduction::kLogSumExp:
      return -kInfinity;
    case Reduction::kMin:
      return kInfinity;
    case Reduction::kProd:
      return 1;
    case Reduction::kMean:
      return std::nullopt;
    case Reduction::kSum:
    case Reduction::kL1:
    case Reduction::kL2:
    case Reduction::kSumSquare:
      return 0;
  }
  return std::nullopt;
}

/// Reduces a tensor without elements, which is known at import, to a constant.
Status reduce_none(Node& node, Reduction reduction, const Shape& axes) {
  const auto value = result_of_none(reduction);
  Shape shape;
  for (std::size_t d = 0; d < node.shape(0).size(); ++d) {
    const bool reduced = std::ranges::find(axes, static_cast<std::int64_t>(d)) != axes.end();
    if (!reduced || node.integer("keepdims", 1) != 0) {
      shape.push_back(reduced ? 1 : node.shape(0)[d]);
    }
  }
  POPRUN_ASSIGN(const std::int64_t elements, checked_elements(shape));
  if (!value || elements == 0 || !is_real(node.element(0))) {
    return node.unsupported("a tensor without elements");
  }
  Constant y = Constant::of_reals({static_cast<float>(*value)}, std::move(shape));
  y.element = node.element(0);
  node.set(0, std::move(y));
  return {};
}

template <Reduction reduction>
Status reduce(Node& node) {
  POPRUN_ASSIGN(const Shape axes, axes_of(node));
  if (std::ranges::count(node.shape(0), 0) > 0) {
    return reduce_none(node, reduction, axes);
  }
  POPRUN_ASSIGN(const TensorId x, node.row_major(0));
  if (axes.empty() && !node.shape(0).empty()) {
    node.pass(0, 0);
    return {};
  }
  POPRUN_ASSIGN(const TensorId y, node.on_reals(x, [&](TensorId reals) -> Result<TensorId> {
    const TensorId reduced =
        layers::reduce(node.builder(), node.free_name(), reduction, reals, axes, node.integer("keepdims", 1) != 0);
    POPRUN_TRY(node.builder().status());
    return reduced;
  }));
  node.set(0, y, node.element(0));
  return {};
}

/// Reduces at import if the input is a known list of integers, such as a shape.
template <Reduction reduction>
Status reduce_or_fold(Node& node) {
  if (!node.folds() || !is_integer(node.element(0)) || node.shape(0).size() != 1) {
    return reduce<reduction>(node);
  }
  if (reduction == Reduction::kMax || reduction == Reduction::kMin) {
    return fold_all(
        node, reduction == Reduction::kMax ? [](std::int64_t a, std::int64_t b) { return std::max(a, b); }
                                           : [](std::int64_t a, std::int64_t b) { return std::min(a, b); });
  }
  if (reduction == Reduction::kSum) {
    return fold_all(node, [](std::int64_t a, std::int64_t b) {
      return std::clamp(a, -kMostElements, kMostElements) + std::clamp(b, -kMostElements, kMostElements);
    });
  }
  // The factors are sizes, so products are limited to the size of the largest tensor.
  return fold_all(node, [](std::int64_t a, std::int64_t b) {
    return std::clamp(std::clamp(a, -kMostElements, kMostElements) * std::clamp(b, -kMostElements, kMostElements),
                      -kMostElements, kMostElements);
  });
}

/// Computes (x - mean) / (sqrt(mean((x - mean)^2)) + 1e-9). Without axes, the means are over images and pixels.
Status mean_variance(Node& node) {
  Shape axes = node.has_attribute("axes") ? node.integers("axes") : Shape{0, 2, 3};
  for (std::int64_t& axis : axes) {
    POPRUN_ASSIGN(const std::size_t at, normal_axis(axis, node.shape(0).size()));
    axis = static_cast<std::int64_t>(at);
  }
  const auto mean = [&](TensorId x) -> Result<TensorId> {
    const TensorId y = layers::reduce(node.builder(), node.free_name(), Reduction::kMean, x, axes, true);
    POPRUN_TRY(node.builder().status());
    return y;
  };
  POPRUN_ASSIGN(const TensorId x, node.row_major(0));
  POPRUN_ASSIGN(const TensorId middle, mean(x));
  POPRUN_ASSIGN(const TensorId centred, node.add("sub", {x, middle}));
  POPRUN_ASSIGN(const TensorId squares, node.add("mul", {centred, centred}));
  POPRUN_ASSIGN(const TensorId variance, mean(squares));
  POPRUN_ASSIGN(const TensorId deviation, node.add("sqrt", {variance}));
  POPRUN_ASSIGN(const TensorId small, node.fill({}, 1e-9));
  POPRUN_ASSIGN(const TensorId divisor, node.add("add", {deviation, small}));
  return node.set_result(node.add("div", {centred, divisor}));
}

Status arg_extreme(Node& node, const std::string& kind) {
  Shape shape = node.shape(0);
  POPRUN_ASSIGN(const std::size_t axis, normal_axis(node.integer("axis", 0), shape.size()));
  POPRUN_ASSIGN(TensorId x, node.row_major(0));
  if (node.type(x).data == DataType::kI32) {
    POPRUN_ASSIGN(x, node.to_reals(x));
  }
  POPRUN_ASSIGN(TensorId y, node.add(kind, {x},
                                     {{"axis", static_cast<std::int64_t>(axis)},
                                      {"last", std::int64_t{node.integer("select_last_index", 0) != 0 ? 1 : 0}}}));
  if (node.integer("keepdims", 1) == 0) {
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
    POPRUN_ASSIGN(y, node.reshape(y, shape));
  }
  node.set(0, y, Proto::INT64);
  return {};
}

}  // namespace

std::vector<Translator> translators() {
  return {{"ReduceSum", 1, reduce_or_fold<Reduction::kSum>},
          {"ReduceMean", 1, reduce<Reduction::kMean>},
          {"ReduceMax", 1, reduce_or_fold<Reduction::kMax>},
          {"ReduceMin", 1, reduce_or_fold<Reduction::kMin>},
          {"ReduceProd", 1, reduce_or_fold<Reduction::kProd>},
          {"ReduceSumSquare", 1, reduce<Reduction::kSumSquare>},
          {"ReduceL1", 1, reduce<Reduction::kL1>},
          {"ReduceL2", 1, reduce<Reduction::kL2>},
          {"ReduceLogSum", 1, reduce<Reduction::kLogSum>},
          {"ReduceLogSumExp", 1, reduce<Reduction::kLogSumExp>},
          {"MeanVarianceNormalization", 1, mean_variance},
          {"ArgMax", 1, [](Node& node) { return arg_extreme(node, "arg_max"); }},
          {"ArgMin", 1, [](Node& node) { return arg_extreme(node, "arg_min"); }}};
}

}  // namespace poprun::onnx_import::nodes::reduction
