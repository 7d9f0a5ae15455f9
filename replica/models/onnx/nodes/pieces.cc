#include <algorithm>

#include <fmt/format.h>

#include "replica/models/onnx/constant.h"
#include "replica/models/onnx/node.h"
#include "replica/models/onnx/window.h"
#include "replica/ops/face/shaped.h"

/// Operators that cut or join tensors: Concat, Split, Slice, Gather, Pad.
namespace poprun::onnx_import::nodes::pieces {
namespace {

using Proto = ::onnx::TensorProto;

/// Returns whether input i must be repeated for each sample. This is the case if a file written for batches of one
/// concatenates its only sample with a single copy of something, such as a class token.
bool lacks_batch(Node& node, std::size_t i, std::size_t axis) {
  const Scope& scope = node.scope();
  if (scope.file_batch != 1 || scope.batch == 1 || axis == 0 || !node.has(i)) {
    return false;
  }
  const auto starts_with = [&](std::size_t k, std::int64_t size) {
    return node.has(k) && node.shape(k).size() > 1 && node.shape(k)[0] == size;
  };
  bool others_have = false;
  for (std::size_t k = 0; k < node.inputs(); ++k) {
    others_have = others_have || starts_with(k, scope.batch);
  }
  return others_have && starts_with(i, 1);
}

Status concat(Node& node) {
  const std::size_t rank = node.shape(0).size();
  POPRUN_ASSIGN(const std::size_t axis, normal_axis(node.integer("axis", 1), rank));
  for (std::size_t i = 0; i < node.inputs(); ++i) {
    Shape shape = node.has(i) ? node.shape(i) : Shape{};
    Shape wanted = node.shape(0);
    if (shape.size() == rank) {
      shape[axis] = wanted[axis];
      shape[0] = lacks_batch(node, i, axis) ? node.scope().batch : shape[0];
      wanted[0] = lacks_batch(node, 0, axis) ? node.scope().batch : wanted[0];
    }
    if (shape != wanted || is_real(node.element(i)) != is_real(node.element(0))) {
      return node.wrong("needs inputs that differ only along the axis");
    }
  }
  if (node.folds()) {
    std::vector<const Constant*> parts;
    for (std::size_t i = 0; i < node.inputs(); ++i) {
      parts.push_back(node.value(i).constant.get());
    }
    node.set(0, concatenated(parts, axis));
    return {};
  }
  std::vector<TensorId> parts;
  bool images = false;
  for (std::size_t i = 0; i < node.inputs(); ++i) {
    if (node.shape(i)[axis] == 0) {
      continue;  // An empty input adds nothing.
    }
    POPRUN_ASSIGN(TensorId part, node.tensor(i));
    if (lacks_batch(node, i, axis)) {
      Shape repeated = node.shape(i);
      repeated[0] = node.scope().batch;
      POPRUN_ASSIGN(part, node.row_major_of(part));
      POPRUN_ASSIGN(part, node.add("expand", {part}, shaped(std::move(repeated))));
    }
    images = images || node.type(part).layout == Layout::kChannelsLast;
    parts.push_back(part);
  }
  if (parts.empty()) {
    return node.unsupported("a tensor without elements");
  }
  for (TensorId& part : parts) {
    POPRUN_ASSIGN(part, node.reshape(part, node.type(part).shape, images ? Layout::kChannelsLast : Layout::kRowMajor));
  }
  TensorId y = parts[0];
  if (parts.size() > 1) {
    POPRUN_ASSIGN(y, node.add("concat", parts, {{"axis", static_cast<std::int64_t>(axis)}}));
  }
  node.set(0, y, node.element(0));
  return {};
}

/// Returns the sizes from the attribute or input, or else equal sizes. Since opset 18, the last part may be smaller.
Result<std::vector<std::int64_t>> split_sizes(Node& node, std::int64_t whole) {
  POPRUN_ASSIGN(const auto given, node.integers_from("split", 1));
  if (given) {
    return *given;
  }
  const auto n = static_cast<std::int64_t>(node.outputs());
  if (node.has_attribute("num_outputs")) {
    const std::int64_t each = (whole + n - 1) / n;
    std::vector<std::int64_t> sizes(node.outputs(), each);
    sizes.back() = whole - each * (n - 1);
    return sizes;
  }
  if (whole % n != 0) {
    return node.wrong(fmt::format("{} elements cannot be split into {} equal parts", whole, n));
  }
  return std::vector<std::int64_t>(node.outputs(), whole / n);
}

Status split(Node& node) {
  POPRUN_ASSIGN(const std::size_t axis, normal_axis(node.integer("axis", 0), node.shape(0).size()));
  POPRUN_ASSIGN(const auto sizes, split_sizes(node, node.shape(0)[axis]));
  std::int64_t sum = 0;
  for (const std::int64_t size : sizes) {
    if (size < 0 || size > node.shape(0)[axis]) {
      return node.wrong("needs part sizes from 0 to the size of the axis");
    }
    sum += size;
  }
  if (sizes.size() != node.outputs() || sum != node.shape(0)[axis]) {
    return node.wrong("needs part sizes that add up to the size of the axis, one for each output");
  }
  if (node.folds()) {
    const auto x = node.value(0).constant;
    std::int64_t begin = 0;
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      node.set(k, sliced(*x, axis, begin, sizes[k], 1));
      begin += sizes[k];
    }
    return {};
  }
  POPRUN_ASSIGN(const TensorId x, node.tensor(0));
  const Element element = node.element(0);
  POPRUN_ASSIGN(
      const auto parts,
      node.add_many("split", {x}, {{"axis", static_cast<std::int64_t>(axis)}, {"sizes", sizes}}, sizes.size()));
  for (std::size_t k = 0; k < parts.size(); ++k) {
    node.set(k, parts[k], element);
  }
  return {};
}

struct Cut {
  std::size_t axis;
  std::int64_t begin;
  std::int64_t count;
  std::int64_t step;
};

/// Applies ONNX's rule: negative bounds count from the end, and bounds out of range are clamped.
Cut cut_of(std::int64_t size, std::size_t axis, std::int64_t start, std::int64_t end, std::int64_t step) {
  const auto from_end = [size](std::int64_t at) { return at < 0 ? at + size : at; };
  const std::int64_t low = step > 0 ? 0 : -1;
  const std::int64_t high = step > 0 ? size : size - 1;
  const std::int64_t begin = std::clamp<std::int64_t>(from_end(start), 0, high);
  const std::int64_t stop = std::clamp<std::int64_t>(from_end(end), low, size);
  const std::int64_t span = step > 0 ? stop - begin : begin - stop;
  const std::int64_t stride = step > 0 ? step : -step;
  return {axis, begin, span <= 0 ? 0 : (span - 1) / stride + 1, step};
}

struct Bounds {
  std::vector<std::int64_t> starts;
  std::vector<std::int64_t> ends;
  std::vector<std::int64_t> axes;
  std::vector<std::int64_t> steps;
};

/// Returns the bounds, which are attributes before opset 10 and inputs from opset 10 on.
Result<Bounds> bounds_of(Node& node) {
  POPRUN_ASSIGN(const auto starts, node.integers_from("starts", 1));
  POPRUN_ASSIGN(const auto ends, node.integers_from("ends", 2));
  POPRUN_ASSIGN(const auto axes, node.integers_from("axes", 3));
  POPRUN_ASSIGN(const auto steps, node.integers_from("steps", 4));
  if (!starts || !ends) {
    return node.wrong("needs starts and ends");
  }
  Bounds bounds{*starts, *ends, axes.value_or(Shape{}), steps.value_or(Shape{})};
  if (!axes) {
    for (std::size_t i = 0; i < starts->size(); ++i) {
      bounds.axes.push_back(static_cast<std::int64_t>(i));
    }
  }
  if (!steps) {
    bounds.steps.assign(starts->size(), 1);
  }
  if (bounds.ends.size() != bounds.starts.size() || bounds.axes.size() != bounds.starts.size() ||
      bounds.steps.size() != bounds.starts.size()) {
    return node.wrong("needs as many starts as ends, axes and steps");
  }
  return bounds;
}

Status slice(Node& node) {
  const Shape x = node.shape(0);
  POPRUN_ASSIGN(const Bounds bounds, bounds_of(node));
  std::vector<Cut> cuts;
  for (std::size_t i = 0; i < bounds.starts.size(); ++i) {
    POPRUN_ASSIGN(const std::size_t axis, normal_axis(bounds.axes[i], x.size()));
    const std::int64_t step = bounds.steps[i];
    if (step == 0 || step < -kMostElements) {
      return node.wrong(fmt::format("a step cannot be {}", step));
    }
    cuts.push_back(cut_of(x[axis], axis, bounds.starts[i], bounds.ends[i], step));
  }
  const bool empty = std::ranges::any_of(cuts, [](const Cut& cut) { return cut.count == 0; });
  if (node.folds()) {
    Constant y = *node.value(0).constant;
    for (const Cut& cut : cuts) {
      y = sliced(y, cut.axis, cut.begin, cut.count, cut.step);
    }
    node.set(0, std::move(y));
    return {};
  }
  if (empty) {
    return node.unsupported("a slice without elements");
  }
  POPRUN_ASSIGN(TensorId y, node.tensor(0));
  for (const Cut& cut : cuts) {
    if (cut.step == 1 && cut.count == x[cut.axis]) {
      continue;
    }
    POPRUN_ASSIGN(y, node.slice(y, static_cast<std::int64_t>(cut.axis), cut.begin, cut.count, cut.step));
  }
  node.set(0, y, node.element(0));
  return {};
}

/// Gathers one row of x by an index that is known and in range. This is a slice, which accepts elements of any type.
Status gather_one(Node& node, const Constant& index, std::size_t axis) {
  const Shape x = node.shape(0);
  const std::int64_t at = index.integer_at(0) + (index.integer_at(0) < 0 ? x[axis] : 0);
  POPRUN_ASSIGN(TensorId y, node.row_major(0));
  POPRUN_ASSIGN(y, node.slice(y, static_cast<std::int64_t>(axis), at, 1));
  const auto place = static_cast<std::ptrdiff_t>(axis);
  Shape shape(x.begin(), x.begin() + place);
  shape.insert(shape.end(), index.shape.begin(), index.shape.end());
  shape.insert(shape.end(), x.begin() + place + 1, x.end());
  POPRUN_ASSIGN(y, node.reshape(y, shape));
  node.set(0, y, node.element(0));
  return {};
}

Status gather(Node& node) {
  if (is_real(node.element(1))) {
    return node.wrong("needs integer indices");
  }
  POPRUN_ASSIGN(const std::size_t axis, indexed_axis(node));
  const Value& indices = node.value(1);
  if (node.folds()) {
    node.set(0, gathered(*node.value(0).constant, *indices.constant, axis));
    return {};
  }
  if (indices.constant != nullptr && !indices.sample && indices.constant->elements() == 1) {
    return gather_one(node, *indices.constant, axis);
  }
  POPRUN_ASSIGN(TensorId x, node.tensor(0));
  POPRUN_ASSIGN(x, node.row_major_of(x));
  POPRUN_ASSIGN(const TensorId rows, node.row_major(1));
  POPRUN_ASSIGN(const TensorId y, node.on_reals(x, [&](TensorId reals) {
    return node.add("gather", {reals, rows}, {{"axis", static_cast<std::int64_t>(axis)}});
  }));
  node.set(0, y, node.element(0));
  return {};
}

/// Pads x. The pads are the attribute `paddings` in opset 1, `pads` in opsets 2 to 10, and an input from opset 11 on.
/// Returns the pads of all axes: at the beginning of each, then at the end of each. Since opset 18, axes may be listed.
Result<Shape> pads_of(Node& node) {
  const std::size_t rank = node.shape(0).size();
  POPRUN_ASSIGN(const auto given, node.integers_from(node.has_attribute("paddings") ? "paddings" : "pads", 1));
  POPRUN_ASSIGN(const auto axes, node.integers_from("axes", 3));
  const std::size_t padded = axes ? axes->size() : rank;
  if (!given || given->size() != 2 * padded ||
      std::ranges::any_of(*given, [](auto p) { return p < -kMostElements || p > kMostElements; })) {
    return node.wrong(fmt::format("needs {} pads", 2 * padded));
  }
  Shape pads(2 * rank, 0);
  for (std::size_t k = 0; k < padded; ++k) {
    POPRUN_ASSIGN(const std::size_t axis, normal_axis(axes ? (*axes)[k] : static_cast<std::int64_t>(k), rank));
    pads[axis] = (*given)[k];
    pads[rank + axis] = (*given)[padded + k];
  }
  return pads;
}

/// Pads each axis with elements from its other end.
Result<TensorId> wrapped(Node& node, const Shape& pads) {
  const std::size_t rank = pads.size() / 2;
  POPRUN_ASSIGN(TensorId x, node.row_major(0));
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t size = node.type(x).shape[d];
    const std::int64_t before = pads[d];
    const std::int64_t after = pads[rank + d];
    if (before < 0 || after < 0 || before > size || after > size) {
      return node.unsupported("mode = wrap with negative pads, or with pads larger than the axis");
    }
    const auto axis = static_cast<std::int64_t>(d);
    std::vector<TensorId> parts = {x};
    if (before > 0) {
      POPRUN_ASSIGN(const TensorId end, node.slice(x, axis, size - before, before));
      parts.insert(parts.begin(), end);
    }
    if (after > 0) {
      POPRUN_ASSIGN(const TensorId begin, node.slice(x, axis, 0, after));
      parts.push_back(begin);
    }
    if (parts.size() > 1) {
      POPRUN_ASSIGN(x, node.add("concat", parts, {{"axis", axis}}));
    }
  }
  return x;
}

Status pad(Node& node) {
  const std::size_t rank = node.shape(0).size();
  POPRUN_ASSIGN(const Shape pads, pads_of(node));
  double value = node.real("value", 0);
  if (node.has(2)) {
    POPRUN_ASSIGN(const float given, node.real_of(2));
    value = static_cast<double>(given);
  }
  const std::string mode = node.text("mode", "constant");
  if (mode == "wrap") {
    return node.set_result(wrapped(node, pads), node.element(0));
  }
  const auto middle = pads.begin() + static_cast<std::ptrdiff_t>(rank);
  Attributes attributes{{"begin", Shape(pads.begin(), middle)}, {"end", Shape(middle, pads.end())}, {"mode", mode}};
  if (mode == "constant") {
    attributes.set("value", value);
  } else if (mode != "reflect" && mode != "edge") {
    return node.unsupported(fmt::format("mode = {}; available: constant, reflect, edge, wrap", mode));
  }
  POPRUN_ASSIGN(const TensorId x, node.tensor(0));
  return node.set_result(node.add_as_reals("pad", {x}, std::move(attributes)), node.element(0));
}

/// Cuts or pads the middle of some axes to given sizes.
Status center_crop_pad(Node& node) {
  const Shape shape = node.shape(0);
  POPRUN_ASSIGN(const auto sizes, node.integers_of(1));
  Shape axes = node.integers("axes");
  if (axes.empty()) {
    for (std::size_t d = 0; d < shape.size(); ++d) {
      axes.push_back(static_cast<std::int64_t>(d));
    }
  }
  if (sizes.size() != axes.size()) {
    return node.wrong("needs a size for each axis");
  }
  Shape begin(shape.size(), 0);
  Shape end(shape.size(), 0);
  POPRUN_ASSIGN(TensorId x, node.row_major(0));
  for (std::size_t k = 0; k < axes.size(); ++k) {
    POPRUN_ASSIGN(const std::size_t axis, normal_axis(axes[k], shape.size()));
    if (sizes[k] < 1 || sizes[k] > kMostElements) {
      return node.wrong(fmt::format("size {} is out of range", sizes[k]));
    }
    const std::int64_t more = sizes[k] - shape[axis];
    if (more < 0) {
      POPRUN_ASSIGN(x, node.slice(x, static_cast<std::int64_t>(axis), -more / 2, sizes[k]));
    } else {
      begin[axis] = more / 2;
      end[axis] = more - more / 2;
    }
  }
  if (begin != Shape(shape.size(), 0) || end != begin) {
    POPRUN_ASSIGN(
        x, node.add_as_reals("pad", {x},
                             {{"begin", begin}, {"end", end}, {"mode", std::string{"constant"}}, {"value", 0.0}}));
  }
  node.set(0, x, node.element(0));
  return {};
}

}  // namespace

std::vector<Translator> translators() {
  return {{"Concat", 1, concat}, {"Split", 1, split}, {"Slice", 1, slice},
          {"Gather", 2, gather}, {"Pad", 1, pad},     {"CenterCropPad", 2, center_crop_pad}};
}

}  // namespace poprun::onnx_import::nodes::pieces
