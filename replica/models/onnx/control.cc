#include "replica/models/onnx/control.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "replica/base/text.h"

namespace poprun::onnx_import {
namespace {

using ::onnx::GraphProto, ::onnx::NodeProto;

constexpr std::int64_t kMostSteps = 1024;  ///< Limit for unrolling, since each step becomes operations of its own.

/// Translates the nodes of a graph inside a node. Its names become names of the outer graph.
Status translate_nodes(Scope& scope, const GraphProto& graph) {
  for (const auto& tensor : graph.initializer()) {
    POPRUN_TRY(add_stored(tensor, scope));
  }
  for (const NodeProto& proto : graph.node()) {
    POPRUN_TRY(translate(scope, proto));
  }
  return {};
}

/// Returns whether the elements come with the job's initial weights (proto/coordinator.proto, SendWeights). More than
/// four reals have more bytes than the text that then takes their place.
bool comes_separately(const ::onnx::TensorProto& tensor) {
  const auto elements = checked_elements(Shape(tensor.dims().begin(), tensor.dims().end()));
  return tensor.raw_data() == "#weights" && is_real(tensor.data_type()) && (!elements || *elements > 4);
}

/// Adds an initialiser whose elements are unknown, and which is therefore always a parameter.
Status add_separate(const ::onnx::TensorProto& tensor, Scope& scope) {
  const std::string& name = tensor.name();
  if (!scope.read.contains(name)) {
    return {};
  }
  const Shape shape(tensor.dims().begin(), tensor.dims().end());
  if (const auto elements = checked_elements(shape); !elements) {
    return fail(elements.error().code, fmt::format("tensor '{}': {}", name, elements.error().message));
  }
  POPRUN_ASSIGN(const TensorId id, scope.variable(name, tensor.data_type(), shape, Role::kParameter));
  scope.weights[name] = nullptr;
  scope.values[name] = Value{.name = name, .element = tensor.data_type(), .tensor = id};
  return {};
}

/// Returns a condition that is known, or nothing.
std::optional<bool> truth(const Value& value) {
  const auto& known = value.constant;
  if (known == nullptr || known->real() || known->elements() != 1) {
    return std::nullopt;
  }
  return known->integer_at(0) != 0;
}

/// Translates the branch of an If whose condition is known.
Status translate_if(Node& node) {
  POPRUN_TRY(node.constant(0));
  const auto condition = truth(node.value(0));
  if (!condition) {
    return node.wrong("the condition must be a single bool");
  }
  const GraphProto& branch = node.graph_attribute(*condition ? "then_branch" : "else_branch");
  if (static_cast<std::size_t>(branch.output_size()) != node.outputs()) {
    return node.wrong(fmt::format("the branch has {}, but the node has {}",
                                  counted(static_cast<std::uint64_t>(branch.output_size()), "output"), node.outputs()));
  }
  POPRUN_TRY(translate_nodes(node.scope(), branch));
  for (std::size_t k = 0; k < node.outputs(); ++k) {
    POPRUN_TRY(node.take(k, branch.output(static_cast<int>(k)).name()));
  }
  return {};
}

/// The body of a Loop or Scan, which is translated once for each step. Values `carried` go from each step to the next;
/// the others are collected.
class Body {
 public:
  Body(Node& node, std::vector<Value> carried)
      : node_(node), body_(node.graph_attribute("body")), carried_(std::move(carried)) {}

  /// Checks the body's inputs and outputs, `extra` of which come before the carried values.
  [[nodiscard]] Status check(std::size_t inputs, std::size_t extra) const {
    const auto given = static_cast<std::size_t>(body_.input_size());
    const auto made = static_cast<std::size_t>(body_.output_size());
    if (given != inputs || made < extra + carried_.size() || made - extra != node_.outputs()) {
      return node_.wrong(fmt::format("its body has {} and {}, which do not match those of the node",
                                     counted(given, "input"), counted(made, "output")));
    }
    return {};
  }

  /// Translates one step. The body's first inputs are `before`, then the carried values, then `after`. Returns the
  /// body's outputs before the carried ones.
  Result<std::vector<Value>> step(std::vector<Value> before, std::vector<Value> after) {
    Scope& scope = node_.scope();
    std::vector<Value> given = std::move(before);
    const std::size_t extra_outputs = static_cast<std::size_t>(body_.output_size()) - node_.outputs();
    given.insert(given.end(), carried_.begin(), carried_.end());
    given.insert(given.end(), after.begin(), after.end());
    for (std::size_t i = 0; i < given.size(); ++i) {
      scope.values[body_.input(static_cast<int>(i)).name()] = given[i];
    }
    const std::string outer = scope.step;
    scope.step += fmt::format("#{}", steps_++);
    POPRUN_TRY(translate_nodes(scope, body_));
    scope.step = outer;
    std::vector<Value> made;
    for (const auto& output : body_.output()) {
      const auto found = scope.values.find(output.name());
      if (found == scope.values.end()) {
        return node_.wrong(fmt::format("'{}' is not produced by any node of its body", output.name()));
      }
      made.push_back(found->second);
    }
    const auto first = made.begin() + static_cast<std::ptrdiff_t>(extra_outputs);
    const auto rest = first + static_cast<std::ptrdiff_t>(carried_.size());
    carried_.assign(first, rest);
    collected_.emplace_back(rest, made.end());
    return std::vector<Value>(made.begin(), first);
  }

  /// Sets the node's outputs: the carried values, then the collected ones, joined along new axes. `axes` has one axis
  /// for each of these, or is empty for axis 0; `reversed` is similar.
  Status finish(const Shape& axes, const Shape& reversed) {
    for (std::size_t k = 0; k < node_.outputs(); ++k) {
      if (!node_.wants_output(k)) {
        continue;
      }
      if (k < carried_.size()) {
        node_.scope().values[node_.proto().output(static_cast<int>(k))] = carried_[k];
        continue;
      }
      const std::size_t n = k - carried_.size();
      POPRUN_TRY(join(k, n, axes.empty() ? 0 : axes[n], !reversed.empty() && reversed[n] != 0));
    }
    return {};
  }

 private:
  Status join(std::size_t k, std::size_t n, std::int64_t given, bool reversed) {
    if (collected_.empty()) {
      return node_.unsupported("an empty output, because the loop has no steps");
    }
    if (reversed) {
      std::ranges::reverse(collected_);
    }
    std::vector<TensorId> parts;
    std::int64_t axis = 0;
    Element element = 0;
    for (const std::vector<Value>& step : collected_) {
      POPRUN_ASSIGN(const TensorId part, node_.on_device(step[n]));
      Shape shape = node_.type(part).shape;
      POPRUN_ASSIGN(const std::size_t at, normal_axis(given, shape.size() + 1));
      axis = static_cast<std::int64_t>(at);
      element = step[n].element;
      shape.insert(shape.begin() + axis, 1);
      POPRUN_ASSIGN(const TensorId row, node_.reshape(part, shape));
      parts.push_back(row);
    }
    if (reversed) {
      std::ranges::reverse(collected_);
    }
    TensorId y = parts[0];
    if (parts.size() > 1) {
      POPRUN_ASSIGN(y, node_.add("concat", parts, {{"axis", axis}}));
    }
    node_.set(k, y, element);
    return {};
  }

  Node& node_;
  const GraphProto& body_;
  std::vector<Value> carried_;
  std::vector<std::vector<Value>> collected_;  ///< For each step.
  std::int64_t steps_ = 0;
};

Value known(std::string name, Constant constant) {
  Value value;
  value.name = std::move(name);
  value.element = constant.element;
  value.constant = std::make_shared<const Constant>(std::move(constant));
  return value;
}

/// Repeats the body while its condition, which must be known, holds, and for a number of steps, if it is given.
Status translate_loop(Node& node) {
  std::int64_t trips = kMostSteps + 1;
  if (node.has(0)) {
    POPRUN_ASSIGN(const auto given, node.integers_of(0));
    if (given.size() != 1) {
      return node.wrong("needs a single number of steps");
    }
    trips = std::clamp<std::int64_t>(given[0], 0, kMostSteps + 1);
  }
  Constant always = Constant::of_integers({1}, {});
  always.element = ::onnx::TensorProto::BOOL;
  Value condition = node.has(1) ? node.value(1) : known(node.step_name() + ".always", std::move(always));
  std::vector<Value> carried;
  for (std::size_t i = 2; i < node.inputs(); ++i) {
    if (!node.has(i)) {
      return node.wrong("needs an initial value for each loop-carried value");
    }
    carried.push_back(node.value(i));
  }
  Body body(node, std::move(carried));
  POPRUN_TRY(body.check(std::max<std::size_t>(node.inputs(), 2), 1));
  for (std::int64_t i = 0; i < trips; ++i) {
    const auto goes_on = truth(condition);
    if (!goes_on) {
      return node.unsupported(
          "a condition that depends on the data; export the model with a fixed number of steps instead");
    }
    if (!*goes_on) {
      break;
    }
    if (i == kMostSteps) {
      return node.unsupported(fmt::format("more than {} steps, each of which becomes operations of its own", i));
    }
    const std::string name = fmt::format("{}.iteration{}", node.step_name(), i);
    POPRUN_ASSIGN(const auto first, body.step({known(name, Constant::of_integers({i}, {})), condition}, {}));
    condition = first[0];
  }
  return body.finish({}, {});
}

/// Returns row i of input k along an axis, without that axis.
Result<Value> row_of(Node& node, std::size_t k, std::size_t axis, std::int64_t i) {
  const Value& value = node.value(k);
  Shape shape = node.shape(k);
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
  if (value.constant != nullptr && !value.tensor && !value.verdict.learnt &&
      value.constant->elements() <= kMostFolded) {
    return known(fmt::format("{}.input{}.row{}", node.step_name(), k, i),
                 reshaped(sliced(*value.constant, axis, i, 1, 1), shape));
  }
  POPRUN_ASSIGN(TensorId x, node.row_major(k));
  POPRUN_ASSIGN(x, node.slice(x, static_cast<std::int64_t>(axis), i, 1));
  POPRUN_ASSIGN(x, node.reshape(x, shape));
  Value row;
  row.element = node.element(k);
  row.tensor = x;
  return row;
}

/// Repeats the body for each row of its scanned inputs.
Status translate_scan(Node& node) {
  if (node.opset() < 9) {
    return node.unsupported("Scan before opset 9; export the model with a newer opset");
  }
  const auto rows = static_cast<std::size_t>(std::max<std::int64_t>(node.integer("num_scan_inputs", 0), 0));
  if (rows < 1 || rows > node.inputs()) {
    return node.wrong("needs num_scan_inputs, from 1 to the number of inputs");
  }
  const std::size_t states = node.inputs() - rows;
  const std::size_t outputs = node.outputs() - std::min(states, node.outputs());
  POPRUN_ASSIGN(const Shape backwards, node.sizes("scan_input_directions", rows, 0, 0));
  POPRUN_ASSIGN(const Shape reversed, node.sizes("scan_output_directions", outputs, 0, 0));
  Shape given = node.integers("scan_input_axes");
  given.resize(rows, 0);
  const Shape out = node.integers("scan_output_axes");
  if (!out.empty() && out.size() != outputs) {
    return node.wrong("needs as many scan_output_axes as scanned outputs");
  }
  std::vector<std::size_t> axes;
  std::int64_t steps = 0;
  std::vector<Value> carried;
  for (std::size_t i = 0; i < node.inputs(); ++i) {
    if (!node.has(i)) {
      return node.wrong("cannot leave out an input");
    }
    if (i < states) {
      carried.push_back(node.value(i));
      continue;
    }
    POPRUN_ASSIGN(const std::size_t axis, normal_axis(given[i - states], node.shape(i).size()));
    axes.push_back(axis);
    const std::int64_t size = node.shape(i)[axis];
    if (steps != 0 && size != steps) {
      return node.wrong("needs scanned inputs of the same length");
    }
    steps = size;
  }
  if (steps > kMostSteps) {
    return node.unsupported(fmt::format("more than {} steps, each of which becomes operations of its own", kMostSteps));
  }
  Body body(node, std::move(carried));
  POPRUN_TRY(body.check(node.inputs(), 0));
  for (std::int64_t t = 0; t < steps; ++t) {
    std::vector<Value> scanned;
    for (std::size_t i = 0; i < rows; ++i) {
      POPRUN_ASSIGN(Value row, row_of(node, states + i, axes[i], backwards[i] != 0 ? steps - 1 - t : t));
      scanned.push_back(std::move(row));
    }
    POPRUN_TRY(body.step({}, std::move(scanned)));
  }
  return body.finish(out, reversed);
}

}  // namespace

const Translator* find_control(const std::string& op) {
  static const std::array<Translator, 3> kAll = {
      {{"If", 1, translate_if}, {"Loop", 0, translate_loop}, {"Scan", 1, translate_scan}}};
  const auto* const found = std::ranges::find(kAll, op, &Translator::op);
  return found == kAll.end() ? nullptr : found;
}

Status add_stored(const ::onnx::TensorProto& tensor, Scope& scope) {
  if (comes_separately(tensor)) {
    return add_separate(tensor, scope);
  }
  POPRUN_ASSIGN(Constant constant, read_tensor(tensor));
  Value value;
  value.name = tensor.name();
  value.element = constant.element;
  value.verdict = judge(scope.storage, value.name, constant, /*node=*/false);
  value.constant = std::make_shared<const Constant>(std::move(constant));
  value.stored = true;
  scope.values[tensor.name()] = std::move(value);
  return {};
}

}  // namespace poprun::onnx_import
