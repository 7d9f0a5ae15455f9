#include <numeric>

#include <fmt/format.h>

#include "replica/models/onnx/node.h"
#include "replica/models/onnx/window.h"

/// Operators that depend on positions: OneHot, CumSum, CumProd, Trilu, NonZero, TopK, and gathering or scattering of
/// single elements.
namespace poprun::onnx_import::nodes::indexing {
namespace {

using Proto = ::onnx::TensorProto;

/// Adds the new dimension as the last one, then moves it into place.
Status one_hot(Node& node) {
  POPRUN_ASSIGN(const float depth, node.real_of(1));
  POPRUN_ASSIGN(const auto values, node.constant(2));
  if (values->elements() != 2 || !(depth >= 1) || depth > static_cast<float>(kMostFolded)) {
    return node.wrong("needs a depth >= 1 and two values");
  }
  const auto value = [&](std::int64_t i) {
    return values->real() ? static_cast<double>(values->real_at(i)) : static_cast<double>(values->integer_at(i));
  };
  POPRUN_ASSIGN(TensorId indices, node.row_major(0));
  if (is_real(node.element(0))) {
    POPRUN_ASSIGN(indices, node.add("cast", {indices}, {{"to", std::string{"i32"}}}));
  }
  POPRUN_ASSIGN(TensorId y,
                node.add("one_hot", {indices},
                         {{"depth", static_cast<std::int64_t>(depth)}, {"on", value(1)}, {"off", value(0)}}));
  const std::size_t rank = node.type(y).shape.size();
  POPRUN_ASSIGN(const std::size_t axis, normal_axis(node.integer("axis", -1), rank));
  std::vector<std::int64_t> perm(rank - 1);
  std::iota(perm.begin(), perm.end(), 0);
  perm.insert(perm.begin() + static_cast<std::ptrdiff_t>(axis), static_cast<std::int64_t>(rank) - 1);
  POPRUN_ASSIGN(y, node.transpose(y, perm));
  if (!values->real()) {
    POPRUN_ASSIGN(y, node.add("cast", {y}, {{"to", std::string{"i32"}}}));
  }
  node.set(0, y, values->element);
  return {};
}

Status scan(Node& node, const std::string& kind) {
  POPRUN_ASSIGN(const auto given, node.integers_of(1));
  if (given.size() != 1) {
    return node.wrong("needs a single axis");
  }
  POPRUN_ASSIGN(const std::size_t axis, normal_axis(given[0], node.shape(0).size()));
  POPRUN_ASSIGN(const TensorId x, node.row_major(0));
  return node.set_result(node.add_as_reals(kind, {x},
                                           {{"axis", static_cast<std::int64_t>(axis)},
                                            {"exclusive", std::int64_t{node.integer("exclusive", 0) != 0 ? 1 : 0}},
                                            {"reverse", std::int64_t{node.integer("reverse", 0) != 0 ? 1 : 0}}}),
                         node.element(0));
}

Status trilu(Node& node) {
  std::int64_t k = 0;
  if (node.has(1)) {
    POPRUN_ASSIGN(const auto given, node.integers_of(1));
    if (given.size() != 1) {
      return node.wrong("needs a single number k");
    }
    k = given[0];
  }
  POPRUN_ASSIGN(const TensorId x, node.row_major(0));
  POPRUN_ASSIGN(
      const TensorId y,
      node.add_as_reals("trilu", {x}, {{"upper", std::int64_t{node.integer("upper", 1) != 0 ? 1 : 0}}, {"k", k}}));
  node.set(0, y, node.element(0));
  return {};
}

/// Lists the positions at which a constant is not zero, one per column. Older exporters use NonZero to generate ranges.
Status non_zero(Node& node) {
  if (!node.folds()) {
    return node.unsupported("positions that depend on the data");
  }
  const Constant& x = *node.value(0).constant;
  std::vector<std::int64_t> found;
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    if (x.real() ? x.real_at(i) != 0 : x.integer_at(i) != 0) {
      found.push_back(i);
    }
  }
  std::vector<std::int64_t> places;
  std::int64_t below = x.elements();  // Elements per index of the current dimension.
  for (const std::int64_t size : x.shape) {
    below /= size;
    for (const std::int64_t i : found) {
      places.push_back(i / below % size);
    }
  }
  const auto columns = static_cast<std::int64_t>(found.size());
  node.set(0, Constant::of_integers(std::move(places), {static_cast<std::int64_t>(x.shape.size()), columns}));
  return {};
}

/// The results are sorted even if the attribute `sorted` is 0, which allows any order. Of equal elements, those at
/// lower positions come first, as in ONNX.
Status top_k(Node& node) {
  POPRUN_ASSIGN(const auto given, node.integers_from("k", 1));
  POPRUN_ASSIGN(const std::size_t axis, normal_axis(node.integer("axis", -1), node.shape(0).size()));
  if (!given || given->size() != 1 || (*given)[0] < 1 || (*given)[0] > node.shape(0)[axis]) {
    return node.wrong("needs a single number k from 1 to the size of the axis");
  }
  POPRUN_ASSIGN(TensorId x, node.row_major(0));
  const bool integers = node.type(x).data != DataType::kF32;
  if (integers) {
    POPRUN_ASSIGN(x, node.to_reals(x));
  }
  POPRUN_ASSIGN(const auto y, node.add_many("top_k", {x},
                                            {{"axis", static_cast<std::int64_t>(axis)},
                                             {"k", (*given)[0]},
                                             {"largest", std::int64_t{node.integer("largest", 1) != 0 ? 1 : 0}}},
                                            2));
  TensorId values = y[0];
  if (integers) {
    POPRUN_ASSIGN(values, node.to_integers(values));
  }
  node.set(0, values, node.element(0));
  node.set(1, y[1], Proto::INT64);
  return {};
}

Status gather_elements(Node& node) {
  POPRUN_ASSIGN(const std::size_t axis, indexed_axis(node));
  POPRUN_ASSIGN(const TensorId x, node.row_major(0));
  POPRUN_ASSIGN(const TensorId indices, node.row_major(1));
  POPRUN_ASSIGN(const TensorId y, node.on_reals(x, [&](TensorId reals) {
    return node.add("gather_elements", {reals, indices}, {{"axis", static_cast<std::int64_t>(axis)}});
  }));
  node.set(0, y, node.element(0));
  return {};
}

Status gather_nd(Node& node) {
  POPRUN_TRY(check_coordinates(node, node.integer("batch_dims", 0)));
  POPRUN_ASSIGN(const TensorId x, node.row_major(0));
  POPRUN_ASSIGN(const TensorId indices, node.row_major(1));
  POPRUN_ASSIGN(const TensorId y, node.on_reals(x, [&](TensorId reals) {
    return node.add("gather_nd", {reals, indices}, {{"batch_dims", node.integer("batch_dims", 0)}});
  }));
  node.set(0, y, node.element(0));
  return {};
}

Status scatter(Node& node, const std::string& kind, Attributes attributes) {
  const std::string reduction = node.text("reduction", "none");
  if (reduction != "none" && reduction != "add" && reduction != "mul" && reduction != "min" && reduction != "max") {
    return node.wrong(fmt::format("reduction = {}; available: none, add, mul, min, max", reduction));
  }
  attributes.set("reduction", reduction);
  POPRUN_ASSIGN(const TensorId x, node.row_major(0));
  POPRUN_ASSIGN(const TensorId indices, node.row_major(1));
  POPRUN_ASSIGN(TensorId updates, node.row_major(2));
  if (node.type(updates).data == DataType::kI32) {
    POPRUN_ASSIGN(updates, node.to_reals(updates));
  }
  POPRUN_ASSIGN(const TensorId y, node.on_reals(x, [&](TensorId reals) {
    return node.add(kind, {reals, indices, updates}, attributes);
  }));
  node.set(0, y, node.element(0));
  return {};
}

Status scatter_elements(Node& node) {
  POPRUN_ASSIGN(const std::size_t axis, indexed_axis(node));
  return scatter(node, "scatter_elements", {{"axis", static_cast<std::int64_t>(axis)}});
}

Status scatter_nd(Node& node) {
  POPRUN_TRY(check_coordinates(node, 0));
  return scatter(node, "scatter_nd", {{"batch_dims", std::int64_t{0}}});
}

}  // namespace

std::vector<Translator> translators() {
  return {{"OneHot", 3, one_hot},
          {"CumSum", 2, [](Node& node) { return scan(node, "cum_sum"); }},
          {"CumProd", 2, [](Node& node) { return scan(node, "cum_prod"); }},
          {"Trilu", 1, trilu},
          {"NonZero", 1, non_zero},
          {"TopK", 1, top_k},
          {"GatherElements", 2, gather_elements},
          {"GatherND", 2, gather_nd},
          {"Scatter", 3, scatter_elements},
          {"ScatterElements", 3, scatter_elements},
          {"ScatterND", 3, scatter_nd}};
}

}  // namespace poprun::onnx_import::nodes::indexing
