#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "replica/models/onnx/constant.h"
#include "replica/models/onnx/node.h"

/// Elementwise functions of one operand. A table gives, for most of them, ONNX's operator, ours and default attributes.
namespace poprun::onnx_import::nodes::activation {
namespace {

using Proto = ::onnx::TensorProto;

struct Function {
  const char* op;
  const char* kind;
  float (*fold)(float);  ///< Evaluates at import; null if only the device evaluates.
  const char* first = nullptr;
  double first_default = 0;
  const char* second = nullptr;
  double second_default = 0;
};

constexpr std::array kFunctions = {
    Function{"Abs", "abs", [](float x) { return std::fabs(x); }},
    Function{"Acos", "acos", nullptr},
    Function{"Acosh", "acosh", nullptr},
    Function{"Asin", "asin", nullptr},
    Function{"Asinh", "asinh", nullptr},
    Function{"Atan", "atan", nullptr},
    Function{"Atanh", "atanh", nullptr},
    Function{"Ceil", "ceil", [](float x) { return std::ceil(x); }},
    Function{"Celu", "celu", nullptr, "alpha", 1},
    Function{"Cos", "cos", nullptr},
    Function{"Cosh", "cosh", nullptr},
    Function{"Elu", "elu", nullptr, "alpha", 1},
    Function{"Erf", "erf", nullptr},
    Function{"Exp", "exp", [](float x) { return std::exp(x); }},
    Function{"Floor", "floor", [](float x) { return std::floor(x); }},
    Function{"HardSigmoid", "hard_sigmoid", nullptr, "alpha", 0.2, "beta", 0.5},
    Function{"HardSwish", "hard_swish", nullptr},
    Function{"LeakyRelu", "leaky_relu", nullptr, "alpha", 0.01},
    Function{"Log", "log", [](float x) { return std::log(x); }},
    Function{"Mish", "mish", nullptr},
    Function{"Neg", "neg", [](float x) { return -x; }},
    Function{"Reciprocal", "reciprocal", [](float x) { return 1 / x; }},
    Function{"Relu", "relu", nullptr},
    Function{"Round", "round", nullptr},
    Function{"Shrink", "shrink", nullptr, "bias", 0, "lambd", 0.5},
    Function{"Sigmoid", "sigmoid", nullptr},
    Function{"Sign", "sign", nullptr},
    Function{"Sin", "sin", nullptr},
    Function{"Sinh", "sinh", nullptr},
    Function{"Softplus", "softplus", nullptr},
    Function{"Softsign", "softsign", nullptr},
    Function{"Sqrt", "sqrt", [](float x) { return std::sqrt(x); }},
    Function{"Tan", "tan", nullptr},
    Function{"Tanh", "tanh", nullptr},
    Function{"ThresholdedRelu", "thresholded_relu", nullptr, "alpha", 1},
};

template <std::size_t row>
Status unary(Node& node) {
  const Function& f = kFunctions[row];
  if (f.fold != nullptr && node.folds() && node.value(0).constant->real()) {
    Constant y = *node.value(0).constant;
    std::ranges::transform(y.reals, y.reals.begin(), f.fold);
    node.set(0, std::move(y));
    return {};
  }
  POPRUN_ASSIGN(const TensorId x, node.tensor(0));
  Attributes attributes;
  for (const auto& [name, otherwise] : {std::pair{f.first, f.first_default}, std::pair{f.second, f.second_default}}) {
    if (name != nullptr) {
      attributes.set(name, node.real(name, otherwise));
    }
  }
  return node.set_result(node.add_as_reals(f.kind, {x}, std::move(attributes)), node.element(0));
}

template <std::size_t... rows>
std::vector<Translator> table(std::index_sequence<rows...> /*rows*/) {
  return {Translator{kFunctions[rows].op, 1, unary<rows>}...};
}

/// Adds gamma (x > 0 ? x : alpha (exp(x) - 1)). With PyTorch's constants, this is a single operator.
Status selu(Node& node) {
  constexpr float kAlpha = 1.6732632423543772F;
  constexpr float kGamma = 1.0507009873554805F;
  POPRUN_ASSIGN(const TensorId x, node.tensor(0));
  // Opsets 1 to 5 define the constants with fewer digits.
  const bool old = node.opset() < 6;
  const double alpha = node.real("alpha", old ? 1.6732 : static_cast<double>(kAlpha));
  const double gamma = node.real("gamma", old ? 1.0507 : static_cast<double>(kGamma));
  if (static_cast<float>(alpha) == kAlpha && static_cast<float>(gamma) == kGamma) {
    return node.set_result(node.add("selu", {x}));
  }
  POPRUN_ASSIGN(const TensorId e, node.add("elu", {x}, {{"alpha", alpha}}));
  POPRUN_ASSIGN(const TensorId factor, node.fill({}, gamma));
  return node.set_result(node.add("mul", {e, factor}));
}

/// Broadcasts the slope to x. Before opset 7, a slope of one dimension has one element per channel.
Status prelu(Node& node) {
  POPRUN_ASSIGN(const TensorId x, node.tensor(0));
  POPRUN_ASSIGN(TensorId slope, node.weight(1));
  const Shape& own = node.type(slope).shape;
  const std::size_t rank = node.type(x).shape.size();
  if (node.opset() < 7 && own.size() == 1 && own[0] != 1 && rank > 2) {
    Shape shape(rank - 1, 1);
    shape[0] = own[0];
    POPRUN_ASSIGN(slope, node.reshape(slope, shape));
  }
  return node.set_result(node.add("prelu", {x, slope}));
}

/// Limits x to bounds that are attributes before opset 11 and inputs from then on. Either or both may be missing.
Status clip(Node& node) {
  Attributes attributes;
  std::size_t i = 1;
  for (const char* bound : {"min", "max"}) {
    if (node.has_attribute(bound)) {
      attributes.set(bound, node.real(bound, 0));
    } else if (node.has(i)) {
      POPRUN_ASSIGN(const float value, node.real_of(i));
      attributes.set(bound, static_cast<double>(value));
    }
    ++i;
  }
  POPRUN_ASSIGN(const TensorId x, node.tensor(0));
  return node.set_result(node.add_as_reals("clip", {x}, std::move(attributes)), node.element(0));
}

Status gelu(Node& node) {
  const std::string approximate = node.text("approximate", "none");
  if (approximate != "none" && approximate != "tanh") {
    return node.wrong(fmt::format("approximate = '{}'; available: none, tanh", approximate));
  }
  POPRUN_ASSIGN(const TensorId x, node.tensor(0));
  return node.set_result(node.add_as_reals(approximate == "tanh" ? "gelu_tanh" : "gelu", {x}), node.element(0));
}

/// Computes x sigmoid(alpha x) and, for SwiGLU, multiplies it by input 1.
Status swish(Node& node) {
  POPRUN_ASSIGN(const TensorId x, node.tensor(0));
  POPRUN_ASSIGN(const TensorId alpha, node.fill({}, node.real("alpha", 1)));
  POPRUN_ASSIGN(const TensorId scaled, node.add("mul", {x, alpha}));
  POPRUN_ASSIGN(const TensorId gate, node.add("sigmoid", {scaled}));
  POPRUN_ASSIGN(TensorId y, node.add("mul", {x, gate}));
  if (node.op() == "SwiGLU") {
    POPRUN_ASSIGN(const TensorId b, node.tensor(1));
    POPRUN_ASSIGN(y, node.add("mul", {y, b}));
  }
  node.set(0, y, node.element(0));
  return {};
}

Status is_nan(Node& node) {
  POPRUN_ASSIGN(const TensorId x, node.tensor(0));
  POPRUN_ASSIGN(const TensorId number, node.add("equal", {x, x}));
  POPRUN_ASSIGN(const TensorId one, node.fill({}, 1));
  return node.set_result(node.add("sub", {one, number}), Proto::BOOL);
}

Status is_inf(Node& node) {
  const bool negative = node.integer("detect_negative", 1) != 0;
  const bool positive = node.integer("detect_positive", 1) != 0;
  if (!negative && !positive) {
    return node.set_result(node.fill(node.shape(0), 0), Proto::BOOL);
  }
  POPRUN_ASSIGN(TensorId x, node.tensor(0));
  if (negative && positive) {
    POPRUN_ASSIGN(x, node.add("abs", {x}));
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  POPRUN_ASSIGN(const TensorId infinity, node.fill({}, positive ? kInfinity : -kInfinity));
  return node.set_result(node.add("equal", {x, infinity}), Proto::BOOL);
}

/// Returns whether all elements of a constant of integers fit into 8 or 16 bits.
bool fits(const Constant& x, Element narrow) {
  const bool is_signed = narrow == Proto::INT8 || narrow == Proto::INT16;
  const std::int64_t range = narrow == Proto::INT8 || narrow == Proto::UINT8 ? 256 : 65536;
  const std::int64_t low = is_signed ? -range / 2 : 0;
  return std::ranges::all_of(x.integers, [&](std::int64_t v) { return v >= low && v < low + range; });
}

/// Converts the element type. Reals that stay real do not change, because float16 and double are float32 here.
Status convert(Node& node, Element to) {
  const Element from = node.element(0);
  const auto known = [](Element element) { return is_real(element) || is_integer(element) || element == Proto::BOOL; };
  // Integers that do not fit would have to wrap around. ONNX has no rule for reals that do not fit.
  const bool narrow = to == Proto::INT8 || to == Proto::UINT8 || to == Proto::INT16 || to == Proto::UINT16;
  const bool may_wrap =
      to != from && narrow && is_integer(from) && !(node.folds() && fits(*node.value(0).constant, to));
  if (!known(from) || !known(to) || may_wrap) {
    return node.unsupported(
        fmt::format("to = {} for an input of type {}; available: float, float16, double, bool, int32, int64, uint32, "
                    "uint64, and narrower integers from reals, bools and constants that fit",
                    element_name(to), element_name(from)));
  }
  if (node.folds()) {
    node.set(0, cast(*node.value(0).constant, to));
    return {};
  }
  if (is_real(to) && node.value(0).through) {
    node.set(0, *node.value(0).through, to);
    return {};
  }
  POPRUN_ASSIGN(TensorId x, node.tensor(0));
  if (to == Proto::BOOL && from != Proto::BOOL) {
    POPRUN_ASSIGN(x, node.add("cast", {x}, {{"to", std::string{"f32"}}}));
    POPRUN_ASSIGN(const TensorId zero, node.fill({}, 0));
    POPRUN_ASSIGN(const TensorId is_zero, node.add("equal", {x, zero}));
    POPRUN_ASSIGN(const TensorId one, node.fill({}, 1));
    POPRUN_ASSIGN(x, node.add("sub", {one, is_zero}));
  } else if (is_integer(to) != is_integer(from)) {
    POPRUN_ASSIGN(x, node.add("cast", {x}, {{"to", std::string{is_integer(to) ? "i32" : "f32"}}}));
  }
  node.set(0, x, to);
  return {};
}

Status cast_to(Node& node) {
  if (node.opset() >= 6) {
    return convert(node, static_cast<Element>(node.integer("to", 0)));
  }
  Proto::DataType to = Proto::UNDEFINED;
  if (!Proto::DataType_Parse(node.text("to", ""), &to)) {
    return node.wrong(fmt::format("to = '{}' is not the name of an ONNX type", node.text("to", "")));
  }
  return convert(node, to);
}

Status cast_like(Node& node) {
  return convert(node, node.element(1));
}

}  // namespace

std::vector<Translator> translators() {
  auto all = table(std::make_index_sequence<kFunctions.size()>());
  for (const Translator& own : std::initializer_list<Translator>{{"Selu", 1, selu},
                                                                 {"PRelu", 2, prelu},
                                                                 {"Clip", 1, clip},
                                                                 {"Gelu", 1, gelu},
                                                                 {"Swish", 1, swish},
                                                                 {"SwiGLU", 2, swish},
                                                                 {"IsNaN", 1, is_nan},
                                                                 {"IsInf", 1, is_inf},
                                                                 {"Cast", 1, cast_to},
                                                                 {"CastLike", 2, cast_like}}) {
    all.push_back(own);
  }
  return all;
}

}  // namespace poprun::onnx_import::nodes::activation
