#include "replica/models/onnx/last_softmax.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <string_view>

#include <fmt/format.h>

namespace poprun::onnx_import {
namespace {

using ::onnx::GraphProto;
using ::onnx::NodeProto;

constexpr std::array<std::string_view, 2> kSame = {"Identity", "Cast"};
constexpr std::array<std::string_view, 4> kReshaping = {"Reshape", "Flatten", "Squeeze", "Unsqueeze"};
constexpr std::array<std::string_view, 5> kMoving = {"Transpose", "Slice", "Gather", "Dropout", "Clip"};

bool is_one_of(std::span<const std::string_view> names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

std::int64_t axis_of(const NodeProto& softmax, std::size_t rank, bool joined) {
  std::int64_t axis = joined ? 1 : -1;
  for (const auto& attribute : softmax.attribute()) {
    axis = attribute.name() == "axis" ? attribute.i() : axis;
  }
  return axis < 0 ? axis + static_cast<std::int64_t>(rank) : axis;
}

/// Returns the size of the output's last dimension that is not 1, or nothing if the file does not give it.
std::optional<std::int64_t> last_size(const ::onnx::ValueInfoProto& output) {
  const auto& dims = output.type().tensor_type().shape().dim();
  for (int d = dims.size() - 1; d >= 0; --d) {
    if (!dims[d].has_dim_value()) {
      return std::nullopt;
    }
    if (dims[d].dim_value() != 1) {
      return dims[d].dim_value();
    }
  }
  return std::nullopt;
}

/// Returns whether the labels fit logits [N,K,...].
bool fit_behind_classes(const Shape& logits, const Shape& labels) {
  Shape others = logits;
  if (others.size() < 3) {
    return false;
  }
  others.erase(others.begin() + 1);
  return others == labels;
}

/// Returns whether the labels fit logits [N,...,K].
bool fit_before_classes(const Shape& logits, const Shape& labels) {
  return std::ranges::equal(labels, std::span(logits).first(logits.size() - 1));
}

}  // namespace

bool classes_are_ambiguous(const Shape& logits, const Shape& labels) {
  return fit_behind_classes(logits, labels) && fit_before_classes(logits, labels);
}

bool classes_come_second(const Shape& logits, const Shape& labels) {
  constexpr std::size_t kImages = 4;
  return fit_behind_classes(logits, labels) && (!fit_before_classes(logits, labels) || logits.size() >= kImages);
}

Shape without_pixels(Shape shape) {
  while (shape.size() > 2 && shape.back() == 1) {
    shape.pop_back();
  }
  return shape;
}

std::size_t classes_axis(const Shape& logits, const Shape& labels) {
  if (classes_come_second(logits, labels)) {
    return 1;
  }
  const bool pooled = labels.size() + 1 < logits.size();
  return std::max<std::size_t>((pooled ? without_pixels(logits) : logits).size(), 1) - 1;
}

LastSoftmax last_softmax(const GraphProto& graph) {
  std::map<std::string_view, const NodeProto*> made_by;
  for (const NodeProto& node : graph.node()) {
    for (const std::string& name : node.output()) {
      made_by[name] = &node;
    }
  }
  LastSoftmax last;
  std::string_view value = graph.output_size() > 0 ? graph.output(0).name() : std::string_view{};
  for (int steps = 0; steps <= graph.node_size(); ++steps) {
    const auto found = made_by.find(value);
    if (found == made_by.end()) {
      return {};
    }
    const NodeProto& node = *found->second;
    if (node.op_type() == "Softmax") {
      last.node = &node;
      return last;
    }
    const bool moves = is_one_of(kMoving, node.op_type());
    const bool reshapes = is_one_of(kReshaping, node.op_type());
    if (node.input_size() == 0 || (!moves && !reshapes && !is_one_of(kSame, node.op_type()))) {
      return {};
    }
    last.behind = moves ? &node : last.behind;
    last.reshaped = last.reshaped || reshapes;
    value = node.input(0);
  }
  return {};
}

std::optional<std::string> reason_to_keep(const LastSoftmax& last, const Shape& x, bool joined,
                                          const std::optional<Shape>& labels, const ::onnx::ValueInfoProto& output) {
  if (last.behind != nullptr) {
    return fmt::format("a {} follows it", last.behind->op_type());
  }
  const auto rank = static_cast<std::int64_t>(x.size());
  std::int64_t axis = axis_of(*last.node, x.size(), joined);
  if (axis < 0 || axis >= rank) {
    return std::nullopt;  // Importing the node will report the error.
  }
  const auto product = [&](std::int64_t from) {
    return std::accumulate(x.begin() + from, x.end(), std::int64_t{1}, std::multiplies<>{});
  };
  const std::string over = fmt::format("it is over axis {}{}, not over the classes", axis,
                                       joined && axis + 1 < rank ? " and those after it" : "");
  if (last.reshaped) {
    const std::int64_t K = joined ? product(axis) : x[static_cast<std::size_t>(axis)];
    const bool in_a_row = joined || product(axis + 1) == 1;
    const bool last_of_output = last_size(output).value_or(K) == K;
    return in_a_row && last_of_output ? std::nullopt : std::optional(over);
  }
  if (joined) {  // Find the only dimension that is not 1, if there is one.
    const std::int64_t K = product(axis);
    while (axis < rank && x[static_cast<std::size_t>(axis)] != K) {
      ++axis;
    }
  }
  const bool fits =
      labels ? axis == static_cast<std::int64_t>(classes_axis(x, *labels)) : axis == rank - 1 || axis == 1;
  return fits ? std::nullopt : std::optional(over);
}

}  // namespace poprun::onnx_import
