#include "replica/models/onnx/node.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "replica/ops/face/shaped.h"

namespace poprun::onnx_import {
namespace {

using Proto = ::onnx::TensorProto;

DataType device_type(Element element) {
  return is_integer(element) ? DataType::kI32 : DataType::kF32;
}

bool all_equal(const Constant& constant) {
  return constant.real() ? constant.reals.size() == 1
                         : constant.element == Proto::BOOL && constant.integers.size() == 1;
}

/// Returns whether the constant's reals differ. The ones and zeros of a norm without weights are not a surprise.
bool has_content(const Constant& constant) {
  return constant.real() && std::ranges::any_of(constant.reals, [&](float x) { return x != constant.reals[0]; });
}

/// Clamps finite elements to float16's range and keeps infinities.
std::shared_ptr<const Constant> within_half(const std::shared_ptr<const Constant>& constant) {
  constexpr float kLargest = 65504;
  const auto beyond = [](float x) { return std::isfinite(x) && std::abs(x) > kLargest; };
  if (std::ranges::none_of(constant->reals, beyond)) {
    return constant;
  }
  auto clamped = std::make_shared<Constant>(*constant);
  for (float& x : clamped->reals) {
    x = beyond(x) ? std::copysign(kLargest, x) : x;
  }
  return clamped;
}

}  // namespace

Result<std::size_t> normal_axis(std::int64_t axis, std::size_t rank) {
  const auto n = static_cast<std::int64_t>(rank);
  if (axis < -n || axis >= n) {
    return fail(
        ErrorCode::kData,
        fmt::format("axis {} is out of range for a tensor of rank {}, which has axes {} to {}", axis, rank, -n, n - 1));
  }
  return static_cast<std::size_t>(axis < 0 ? axis + n : axis);
}

std::string Scope::free_name(const std::string& name) const {
  Graph& graph = builder->graph();
  graph.release(name);
  std::string free = name;
  for (std::size_t n = 2; builder->is_taken(free) || graph.is_reserved(free); ++n) {
    free = fmt::format("{}~{}", name, n);
  }
  return free;
}

Result<TensorId> Scope::variable(const std::string& name, Element element, const Shape& shape, Role role) {
  const TensorType type{device_type(element), shape, Layout::kRowMajor};
  if (std::ranges::find(shape, 0) != shape.end()) {
    return fail(ErrorCode::kUsage, fmt::format("tensor '{}' without elements is not supported", name));
  }
  Graph& graph = builder->graph();
  if (!graph.has(name)) {
    const TensorId id = builder->variable(name, type, role, {});
    POPRUN_TRY(builder->status());
    return id;
  }
  // The function for evaluation uses the variables of the training function.
  const TensorId id = graph.find(name);
  const Role had = graph.tensor(id).role;
  const bool is_variable = had == Role::kParameter || had == Role::kBuffer || had == Role::kConstant;
  if (!is_variable || graph.tensor(id).type != type) {
    return fail(ErrorCode::kData,
                fmt::format("the job already has another tensor '{}'; rename the tensor in the file", name));
  }
  return id;
}

Result<std::vector<TensorId>> Scope::add(const std::string& name, const std::string& kind, std::vector<TensorId> inputs,
                                         Attributes attributes, std::size_t outputs) {
  if (find_operator(kind) == nullptr) {
    return fail(ErrorCode::kUsage, fmt::format("operator '{}' is not supported", kind));
  }
  const std::string free = free_name(name);
  std::vector<std::string> names = {free};
  for (std::size_t k = 1; k < outputs; ++k) {
    names.push_back(fmt::format("{}.{}", free, k));
  }
  auto added = builder->add(kind, std::move(inputs), std::move(attributes), names);
  POPRUN_TRY(builder->status());
  for (const TensorId id : added) {
    POPRUN_ASSIGN(const std::int64_t elements, checked_elements(builder->type(id).shape));
    if (elements == 0) {
      return fail(ErrorCode::kUsage, "not supported: a tensor without elements");
    }
  }
  return added;
}

bool Node::has(std::size_t i) const {
  return i < inputs() && !proto_.input(static_cast<int>(i)).empty();
}

bool Node::wants_output(std::size_t k) const {
  return k < outputs() && scope_.read.contains(proto_.output(static_cast<int>(k)));
}

const Value& Node::value(std::size_t i) const {
  return scope_.values.at(proto_.input(static_cast<int>(i)));
}

Shape Node::shape(std::size_t i) const {
  const Value& v = value(i);
  const std::optional<TensorId> tensor = v.tensor ? v.tensor : v.through;
  return tensor ? scope_.builder->type(*tensor).shape : v.constant->shape;
}

bool Node::folds() const {
  for (std::size_t i = 0; i < inputs(); ++i) {
    if (has(i) && (value(i).constant == nullptr || value(i).sample || (value(i).stored && value(i).constant->real()) ||
                   value(i).constant->elements() > kMostFolded || value(i).constant->elements() == 0)) {
      return false;
    }
  }
  return true;
}

Result<std::shared_ptr<const Constant>> Node::constant(std::size_t i) {
  if (value(i).constant == nullptr) {
    return unsupported(
        fmt::format("input '{}' must be known when the model is imported", proto_.input(static_cast<int>(i))));
  }
  return value(i).constant;
}

Result<std::vector<std::int64_t>> Node::integers_of(std::size_t i) {
  POPRUN_ASSIGN(const auto known, constant(i));
  if (known->real() || known->elements() > kMostFolded) {
    return wrong(fmt::format("input '{}' must be a list of integers", value(i).name));
  }
  return known->all_integers();
}

Result<float> Node::real_of(std::size_t i) {
  POPRUN_ASSIGN(const auto known, constant(i));
  if (known->elements() != 1) {
    return wrong(fmt::format("input '{}' must have one element", value(i).name));
  }
  return known->real() ? known->real_at(0) : static_cast<float>(known->integer_at(0));
}

Result<TensorId> Node::row_major(std::size_t i) {
  POPRUN_ASSIGN(const TensorId x, tensor(i));
  return row_major_of(x);
}

Result<TensorId> Node::row_major_of(TensorId x) {
  return type(x).layout == Layout::kRowMajor ? x : reshape(x, type(x).shape);
}

Result<TensorId> Node::image(std::size_t i) {
  POPRUN_ASSIGN(const TensorId x, tensor(i));
  if (type(x).shape.size() != 4) {
    return unsupported(fmt::format("{} as an image, which must have rank 4", to_text(type(x))));
  }
  return reshape(x, type(x).shape, Layout::kChannelsLast);
}

Result<TensorId> Node::reshape(TensorId x, Shape shape, Layout layout) {
  const TensorType from = type(x);
  if (from.shape == shape && from.layout == layout) {
    return x;
  }
  if (from.layout == Layout::kChannelsLast && layout == from.layout) {
    POPRUN_ASSIGN(x, row_major_of(x));
  }
  return add("reshape", {x}, shaped(std::move(shape), layout));
}

Result<TensorId> Node::expand(TensorId x, const Shape& shape) {
  POPRUN_ASSIGN(x, row_major_of(x));
  return add("expand", {x}, shaped(shape));
}

Result<TensorId> Node::transpose(TensorId x, std::vector<std::int64_t> perm) {
  POPRUN_ASSIGN(x, row_major_of(x));
  if (std::ranges::is_sorted(perm)) {
    return x;
  }
  return add("transpose", {x}, {{"perm", std::move(perm)}});
}

Result<TensorId> Node::fill(Shape shape, double value) {
  return add("fill", {}, {{"shape", std::move(shape)}, {"value", value}});
}

Result<TensorId> Node::device_constant(Constant constant, const std::string& suffix) {
  Value value;
  value.name = fmt::format("{}.{}", step_name(), suffix);
  while (builder().graph().is_reserved(value.name)) {
    value.name += "~";
  }
  value.element = constant.element;
  value.constant = std::make_shared<const Constant>(std::move(constant));
  return variable(scope_.constants + value.name, value, Role::kConstant);
}

Result<TensorId> Node::variable(const std::string& name, const Value& value, Role role) {
  auto id = scope_.variable(name, value.element, value.constant->shape, role);
  if (!id) {
    return wrong(id.error().message);
  }
  scope_.weights[name] = value.constant;
  return id;
}

Result<TensorId> Node::constant_tensor(Value v) {
  if (scope_.half && v.constant->real()) {
    const auto within = within_half(v.constant);
    if (within != v.constant) {
      scope_.notes.push_back(
          {"onnx.clamped",
           fmt::format("model.precision = half: constant '{}' is clamped to -65,504 to 65,504", v.name),
           {{"constant", v.name}}});
      v.constant = within;
    }
  }
  if (all_equal(*v.constant) && v.constant->elements() > 0) {
    const float element = v.constant->real() ? v.constant->real_at(0) : static_cast<float>(v.constant->integer_at(0));
    return fill(v.constant->shape, static_cast<double>(element));
  }
  return variable(scope_.constants + v.name, v, Role::kConstant);
}

/// Records the value as a surprise if its verdict contradicts its appearance.
void Node::record(const Value& v, Use use) {
  if (!v.constant->real() || v.sample) {
    return;
  }
  if (v.verdict.learnt) {
    if (v.constant->elements() == 1 && use == Use::kOperand) {
      scope_.surprises.numbers.insert(v.name);
    }
  } else if (v.stored) {
    scope_.surprises.constants[v.name] = v.verdict.reason;
  } else if (has_content(*v.constant) && v.node && !v.verdict.reason.empty()) {
    scope_.surprises.constants[v.name] = v.verdict.reason;
  } else if (has_content(*v.constant) && !v.node && use == Use::kWeight) {
    scope_.surprises.constants[v.name] = "computed from constants";
  }
}

Result<TensorId> Node::materialise(std::size_t i, Use use) {
  Value& v = scope_.values.at(proto_.input(static_cast<int>(i)));
  if (v.tensor) {
    return *v.tensor;
  }
  if (v.through) {
    POPRUN_ASSIGN(v.tensor, to_integers(*v.through));
    return *v.tensor;
  }
  Role role = v.verdict.learnt ? Role::kParameter : Role::kConstant;
  if (use == Use::kBuffer) {
    role = Role::kBuffer;
  } else {
    record(v, use);
  }
  if (role == Role::kConstant) {
    POPRUN_ASSIGN(v.tensor, constant_tensor(v));
    return *v.tensor;
  }
  std::string name = v.name;
  if (name == "__metadata__") {
    name += "~";
    scope_.notes.push_back(
        {"onnx.renamed",
         fmt::format("the weight '{}' is saved as '{}' because safetensors files reserve its name", v.name, name),
         {{"weight", v.name}, {"saved-as", name}}});
  }
  POPRUN_ASSIGN(v.tensor, variable(name, v, role));
  return *v.tensor;
}

Result<TensorId> Node::on_device(const Value& value) {
  if (value.sequence != nullptr) {
    return unsupported("a sequence in place of a tensor");
  }
  scope_.values[""] = value;  // No value of the file has this name.
  ::onnx::NodeProto reader;
  reader.add_input("");
  reader.add_output(label());
  Node one(scope_, reader);
  auto y = one.materialise(0, Use::kOperand);
  scope_.values.erase("");
  POPRUN_ASSIGN(const TensorId x, std::move(y));
  return row_major_of(x);
}

Result<TensorId> Node::reals_of(std::size_t i) {
  if (const auto through = value(i).through) {
    return *through;
  }
  POPRUN_ASSIGN(const TensorId x, tensor(i));
  return to_reals(x);
}

void Node::keep_constant(std::size_t i, const std::string& reason) {
  Value& v = scope_.values.at(proto_.input(static_cast<int>(i)));
  if (v.verdict.learnt && !v.tensor && !scope_.storage.forces(v.name)) {
    v.verdict = {.learnt = false, .reason = reason};
  }
}

Result<TensorId> Node::add(const std::string& kind, std::vector<TensorId> inputs, Attributes attributes) {
  POPRUN_ASSIGN(const auto added, add_many(kind, std::move(inputs), std::move(attributes), 1));
  return added[0];
}

Result<TensorId> Node::to_reals(TensorId x) {
  POPRUN_ASSIGN(const TensorId y, add("cast", {x}, {{"to", std::string{"f32"}}}));
  builder().graph().set_role(y, Role::kMetric);
  return y;
}

Result<TensorId> Node::to_integers(TensorId y) {
  builder().graph().set_role(y, Role::kMetric);
  return add("cast", {y}, {{"to", std::string{"i32"}}});
}

Result<TensorId> Node::on_reals(TensorId x, const std::function<Result<TensorId>(TensorId)>& compute) {
  if (type(x).data != DataType::kI32) {
    return compute(x);
  }
  POPRUN_ASSIGN(const TensorId reals, to_reals(x));
  POPRUN_ASSIGN(const TensorId y, compute(reals));
  return to_integers(y);
}

Result<TensorId> Node::add_as_reals(const std::string& kind, std::vector<TensorId> inputs, Attributes attributes) {
  bool integers = false;
  for (TensorId& input : inputs) {
    if (type(input).data == DataType::kI32) {
      POPRUN_ASSIGN(input, to_reals(input));
      integers = true;
    }
  }
  POPRUN_ASSIGN(const TensorId y, add(kind, std::move(inputs), std::move(attributes)));
  return integers ? to_integers(y) : y;
}

Result<std::vector<TensorId>> Node::add_many(const std::string& kind, std::vector<TensorId> inputs,
                                             Attributes attributes, std::size_t outputs) {
  return scope_.add(step_name(), kind, std::move(inputs), std::move(attributes), outputs);
}

void Node::set(std::size_t k, Value value) {
  if (wants_output(k)) {
    const std::string& name = proto_.output(static_cast<int>(k));
    value.name = name + scope_.step;
    scope_.values[name] = std::move(value);
  }
}

void Node::set(std::size_t k, TensorId tensor, Element element) {
  set(k, Value{.element = element, .tensor = tensor});
}

void Node::set(std::size_t k, Constant constant) {
  const Element element = constant.element;
  set(k, Value{.element = element, .constant = std::make_shared<const Constant>(std::move(constant))});
}

void Node::set_quantised(std::size_t k, TensorId through, Element element) {
  set(k, Value{.element = element, .through = through});
}

void Node::set_written(Constant constant) {
  Value value;
  value.name = proto_.output(0);
  value.element = constant.element;
  value.verdict = judge(scope_.storage, value.name, constant, /*node=*/true);
  value.stored = value.verdict.learnt;
  value.node = true;
  value.constant = std::make_shared<const Constant>(std::move(constant));
  scope_.values[value.name] = std::move(value);
}

void Node::copy_weight() {
  Value copy = value(0);
  copy.name = proto_.output(0);
  copy.tensor.reset();
  scope_.values[copy.name] = std::move(copy);
}

void Node::pass(std::size_t k, std::size_t i) {
  if (wants_output(k)) {
    scope_.values[proto_.output(static_cast<int>(k))] = value(i);
  }
}

Status Node::take(std::size_t k, const std::string& name) {
  const auto found = scope_.values.find(name);
  if (found == scope_.values.end()) {
    return wrong(fmt::format("'{}' is not produced by any node", name));
  }
  if (const Value value = found->second; wants_output(k)) {
    scope_.values[proto_.output(static_cast<int>(k))] = value;
  }
  return {};
}

tl::unexpected<Error> Node::unsupported(const std::string& what) const {
  return fail(ErrorCode::kUsage, fmt::format("not supported: {}", what));
}

tl::unexpected<Error> Node::wrong(const std::string& what) const {
  return fail(ErrorCode::kData, what);
}

}  // namespace poprun::onnx_import
