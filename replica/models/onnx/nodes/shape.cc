#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/models/layers/shapes.h"
#include "replica/models/onnx/constant.h"
#include "replica/models/onnx/node.h"
#include "replica/ops/face/shaped.h"

/// Operators that move or repeat elements (Reshape, Flatten, Squeeze, Unsqueeze, Transpose, Expand, Tile, Identity,
/// DepthToSpace, SpaceToDepth), return the shape (Shape, Size) or create tensors (ConstantOfShape, Range, EyeLike).
namespace poprun::onnx_import::nodes::shape {
namespace {

using Proto = ::onnx::TensorProto;

Status set_reshaped(Node& node, Shape shape) {
  POPRUN_ASSIGN(const std::int64_t elements, checked_elements(shape));
  if (node.folds()) {
    if (elements != node.value(0).constant->elements()) {
      return node.wrong("the new shape has a different number of elements than the input");
    }
    node.set(0, reshaped(*node.value(0).constant, std::move(shape)));
    return {};
  }
  POPRUN_ASSIGN(const TensorId x, node.tensor(0));
  return node.set_result(node.reshape(x, std::move(shape)), node.element(0));
}

/// Returns the target with 0 (the input's size) and -1 (the rest) replaced. If the target begins with the batch size
/// that the file was written for, and x begins with the import's batch size, the import's size replaces the file's.
Result<Shape> reshape_target(Node& node, Shape target) {
  const Shape& x = node.shape(0);
  const Scope& scope = node.scope();
  if (scope.file_batch > 0 && scope.batch != scope.file_batch && !target.empty() && !x.empty() &&
      target[0] == scope.file_batch && x[0] == scope.batch) {
    target[0] = scope.batch;
  }
  const bool allow_zero = node.integer("allowzero", 0) != 0;
  std::int64_t known = 1;
  for (std::size_t d = 0; d < target.size(); ++d) {
    if (target[d] == 0 && !allow_zero) {
      if (d >= x.size()) {
        return node.wrong("the shape contains a 0 beyond the last dimension of the input");
      }
      target[d] = x[d];
    }
    if (target[d] < -1 || target[d] > kMostElements) {
      return node.wrong(fmt::format("a dimension cannot be {}", target[d]));
    }
    known = target[d] == -1 ? known : known * std::max<std::int64_t>(target[d], 1);
    if (known > kMostElements) {
      return node.wrong("the shape has more elements than the input");
    }
  }
  const auto open = std::ranges::find(target, -1);
  if (open != target.end()) {
    const auto elements = checked_elements(x);
    if (!elements || *elements % known != 0) {
      return node.wrong(
          fmt::format("a tensor of shape [{}] cannot be reshaped to [{}]", fmt::join(x, ","), fmt::join(target, ",")));
    }
    *open = *elements / known;
    if (std::ranges::count(target, -1) != 0) {
      return node.wrong("the shape has more than one -1");
    }
  }
  return target;
}

Status reshape(Node& node) {
  POPRUN_ASSIGN(const auto target, node.integers_from("shape", 1));
  if (!target) {
    return node.wrong("needs a shape");
  }
  POPRUN_ASSIGN(Shape shape, reshape_target(node, *target));
  return set_reshaped(node, std::move(shape));
}

Status flatten(Node& node) {
  const Shape& x = node.shape(0);
  const std::int64_t given = node.integer("axis", 1);
  std::size_t axis = x.size();
  if (given != static_cast<std::int64_t>(x.size())) {
    POPRUN_ASSIGN(axis, normal_axis(given, x.size()));
  }
  const auto middle = x.begin() + static_cast<std::ptrdiff_t>(axis);
  return set_reshaped(node, {std::accumulate(x.begin(), middle, std::int64_t{1}, std::multiplies<>{}),
                             std::accumulate(middle, x.end(), std::int64_t{1}, std::multiplies<>{})});
}

Status squeeze(Node& node) {
  const Shape& x = node.shape(0);
  POPRUN_ASSIGN(const auto axes, node.integers_from("axes", 1));
  std::vector<bool> drop(x.size(), false);
  for (const std::int64_t given : axes.value_or(Shape{})) {
    POPRUN_ASSIGN(const std::size_t axis, normal_axis(given, x.size()));
    if (x[axis] != 1) {
      return node.wrong(fmt::format("cannot remove axis {}, which has {} elements instead of 1", given, x[axis]));
    }
    drop[axis] = true;
  }
  Shape shape;
  for (std::size_t d = 0; d < x.size(); ++d) {
    if (axes ? !drop[d] : x[d] != 1) {
      shape.push_back(x[d]);
    }
  }
  return set_reshaped(node, shape);
}

Status unsqueeze(Node& node) {
  const Shape x = node.shape(0);
  POPRUN_ASSIGN(const auto axes, node.integers_from("axes", 1));
  if (!axes) {
    return node.wrong("needs axes");
  }
  std::vector<bool> added(x.size() + axes->size(), false);
  for (const std::int64_t given : *axes) {
    POPRUN_ASSIGN(const std::size_t axis, normal_axis(given, added.size()));
    if (added[axis]) {
      return node.wrong("an axis is listed twice");
    }
    added[axis] = true;
  }
  Shape shape;
  auto next = x.begin();
  for (const bool one : added) {
    shape.push_back(one ? 1 : *next++);
  }
  return set_reshaped(node, shape);
}

Status transpose(Node& node) {
  const std::size_t rank = node.shape(0).size();
  std::vector<std::int64_t> perm = node.integers("perm");
  if (!node.has_attribute("perm")) {
    perm.resize(rank);
    std::iota(perm.rbegin(), perm.rend(), 0);
  }
  auto sorted = perm;
  std::ranges::sort(sorted);
  for (std::size_t d = 0; d < rank; ++d) {
    if (perm.size() != rank || sorted[d] != static_cast<std::int64_t>(d)) {
      return node.wrong("perm must list each dimension once");
    }
  }
  if (node.folds()) {
    node.set(0, transposed(*node.value(0).constant, perm));
    return {};
  }
  POPRUN_ASSIGN(const TensorId x, node.tensor(0));
  return node.set_result(node.transpose(x, perm), node.element(0));
}

Status identity(Node& node) {
  const Value& x = node.value(0);
  if (x.stored && x.constant->real() && node.scope().storage.copies_weight(node.proto().output(0))) {
    node.copy_weight();
    return {};
  }
  node.pass(0, 0);
  return {};
}

Result<Shape> common_shape(Node& node, const Shape& x, const Shape& target) {
  Shape shape(std::max(x.size(), target.size()), 1);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t a = d < x.size() ? x[x.size() - 1 - d] : 1;
    const std::int64_t b = d < target.size() ? target[target.size() - 1 - d] : 1;
    if (a != b && a != 1 && b != 1) {
      return node.wrong(fmt::format("[{}] does not broadcast with [{}]", fmt::join(x, ","), fmt::join(target, ",")));
    }
    shape[shape.size() - 1 - d] = a == 1 ? b : a;
  }
  POPRUN_TRY(checked_elements(shape));
  return shape;
}

Status expand(Node& node) {
  POPRUN_ASSIGN(const auto target, node.integers_of(1));
  POPRUN_ASSIGN(const Shape shape, common_shape(node, node.shape(0), target));
  POPRUN_ASSIGN(const std::int64_t elements, checked_elements(shape));
  if (node.folds() && elements <= kMostFolded) {
    node.set(0, expanded(*node.value(0).constant, shape));
    return {};
  }
  POPRUN_ASSIGN(const TensorId x, node.tensor(0));
  return node.set_result(node.expand(x, shape), node.element(0));
}

/// Repeats x [A,B] r and s times: [A,B] -> [1,A,1,B] -> [r,A,s,B] -> [r A, s B].
Status tile(Node& node) {
  const Shape x = node.shape(0);
  std::vector<std::int64_t> repeats;
  if (node.opset() < 6 && node.inputs() == 3) {  // Opset 1 tiles one axis.
    POPRUN_ASSIGN(const auto tiles, node.integers_of(1));
    POPRUN_ASSIGN(const auto axes, node.integers_of(2));
    if (tiles.size() != 1 || axes.size() != 1) {
      return node.wrong("needs one number of tiles and one axis");
    }
    POPRUN_ASSIGN(const std::size_t axis, normal_axis(axes[0], x.size()));
    repeats.assign(x.size(), 1);
    repeats[axis] = tiles[0];
  } else if (node.has(1)) {
    POPRUN_ASSIGN(repeats, node.integers_of(1));
  }
  if (repeats.size() != x.size() || std::ranges::any_of(repeats, [](auto r) { return r < 1 || r > kMostElements; })) {
    return node.wrong("needs a number of repeats >= 1 for each dimension");
  }
  Shape ones;
  Shape wide;
  Shape y_shape;
  for (std::size_t d = 0; d < x.size(); ++d) {
    ones.insert(ones.end(), {1, x[d]});
    wide.insert(wide.end(), {repeats[d], x[d]});
    y_shape.push_back(repeats[d] * x[d]);
  }
  POPRUN_ASSIGN(const std::int64_t elements, checked_elements(y_shape));
  if (node.folds() && elements <= kMostFolded) {
    node.set(0, reshaped(expanded(reshaped(*node.value(0).constant, ones), wide), y_shape));
    return {};
  }
  POPRUN_ASSIGN(const TensorId whole, node.row_major(0));
  const TensorId y = layers::tile(node.builder(), node.free_name(), whole, repeats);
  POPRUN_TRY(node.builder().status());
  node.set(0, y, node.element(0));
  return {};
}

Status shape_of(Node& node) {
  const Shape& x = node.shape(0);
  const auto rank = static_cast<std::int64_t>(x.size());
  const auto bound = [rank](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const std::int64_t begin = bound(node.integer("start", 0));
  const std::int64_t end = std::max(begin, bound(node.integer("end", rank)));
  node.set(0, Constant::of_integers({x.begin() + begin, x.begin() + end}, {end - begin}));
  return {};
}

Status size(Node& node) {
  POPRUN_ASSIGN(const std::int64_t elements, checked_elements(node.shape(0)));
  node.set(0, Constant::of_integers({elements}, {}));
  return {};
}

Status constant_of_shape(Node& node) {
  POPRUN_ASSIGN(const Shape shape, node.integers_of(0));
  POPRUN_TRY(checked_elements(shape));
  Constant constant = Constant::of_reals({0}, {});
  if (const auto* value = node.tensor_attribute("value"); value != nullptr) {
    POPRUN_ASSIGN(constant, read_tensor(*value));
    if (constant.elements() != 1) {
      return node.wrong("the value must have one element");
    }
  }
  constant.shape = shape;
  node.set(0, std::move(constant));
  return {};
}

/// Returns `count` numbers: start, start + delta, ...
template <typename T>
std::vector<T> steps(T start, T delta, std::int64_t count) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(start + static_cast<T>(i) * delta);
  }
  return values;
}

Status range(Node& node) {
  POPRUN_ASSIGN(const auto start, node.constant(0));
  POPRUN_ASSIGN(const auto limit, node.constant(1));
  POPRUN_ASSIGN(const auto delta, node.constant(2));
  if (start->elements() != 1 || limit->elements() != 1 || delta->elements() != 1) {
    return node.wrong("start, limit and delta must be scalars");
  }
  const auto value = [](const Constant& c) {
    return c.real() ? static_cast<double>(c.real_at(0)) : static_cast<double>(c.integer_at(0));
  };
  const double count = std::ceil((value(*limit) - value(*start)) / value(*delta));
  if (!(count <= static_cast<double>(kMostFolded))) {
    return node.unsupported("a range with too many elements to compute at import");
  }
  const auto n = static_cast<std::int64_t>(std::max(count, 0.0));
  Constant y = start->real() ? Constant::of_reals(steps(start->real_at(0), delta->real_at(0), n), {n})
                             : Constant::of_integers(steps(start->integer_at(0), delta->integer_at(0), n), {n});
  y.element = start->element;
  node.set(0, std::move(y));
  return {};
}

Status eye_like(Node& node) {
  const Shape& x = node.shape(0);
  if (x.size() != 2) {
    return node.wrong("needs a matrix");
  }
  POPRUN_ASSIGN(const std::int64_t elements, checked_elements(x));
  if (elements > kMostFolded) {
    return node.unsupported("a matrix with too many elements to compute at import");
  }
  std::vector<float> values(static_cast<std::size_t>(elements), 0);
  const std::int64_t k = node.integer("k", 0);
  for (std::int64_t row = 0; row < x[0]; ++row) {
    if (row + k >= 0 && row + k < x[1]) {
      values[static_cast<std::size_t>(row * x[1] + row + k)] = 1;
    }
  }
  const auto element = static_cast<Element>(node.integer("dtype", static_cast<std::int64_t>(node.element(0))));
  node.set(0, cast(Constant::of_reals(std::move(values), x), element));
  return {};
}

Status depth_to_space(Node& node) {
  POPRUN_ASSIGN(const TensorId x, node.tensor(0));
  const TensorId y = layers::depth_to_space(
      node.builder(), node.free_name(), x, node.integer("blocksize", 0),
      node.text("mode", "DCR") == "CRD" ? layers::DepthOrder::kChannelFirst : layers::DepthOrder::kBlockFirst);
  POPRUN_TRY(node.builder().status());
  node.set(0, y);
  return {};
}

Status space_to_depth(Node& node) {
  POPRUN_ASSIGN(const TensorId x, node.tensor(0));
  const TensorId y = layers::space_to_depth(node.builder(), node.free_name(), x, node.integer("blocksize", 0));
  POPRUN_TRY(node.builder().status());
  node.set(0, y);
  return {};
}

}  // namespace

std::vector<Translator> translators() {
  return {{"Reshape", 1, reshape},
          {"Flatten", 1, flatten},
          {"Squeeze", 1, squeeze},
          {"Unsqueeze", 1, unsqueeze},
          {"Transpose", 1, transpose},
          {"Identity", 1, identity},
          {"Expand", 2, expand},
          {"Tile", 1, tile},
          {"Shape", 1, shape_of},
          {"Size", 1, size},
          {"ConstantOfShape", 1, constant_of_shape},
          {"Range", 3, range},
          {"EyeLike", 1, eye_like},
          {"DepthToSpace", 1, depth_to_space},
          {"SpaceToDepth", 1, space_to_depth}};
}

}  // namespace poprun::onnx_import::nodes::shape
