#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "replica/models/onnx/constant.h"
#include "replica/models/onnx/node.h"

/// Elementwise functions of two or more operands, with broadcasting: arithmetic, comparison, logic and Where.
namespace poprun::onnx_import::nodes::elementwise {
namespace {

using Proto = ::onnx::TensorProto;

/// Computes in two's complement, without undefined overflow.
template <typename Function>
std::int64_t wrapped(std::int64_t a, std::int64_t b, Function f) {
  return static_cast<std::int64_t>(f(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
}

bool divides(std::int64_t a, std::int64_t b) {
  return b != 0 && !(b == -1 && a == std::numeric_limits<std::int64_t>::min());
}

const Binary kAdd{[](std::int64_t a, std::int64_t b) { return wrapped(a, b, std::plus<>{}); },
                  [](float a, float b) { return a + b; }, nullptr};
const Binary kSub{[](std::int64_t a, std::int64_t b) { return wrapped(a, b, std::minus<>{}); },
                  [](float a, float b) { return a - b; }, nullptr};
const Binary kMul{[](std::int64_t a, std::int64_t b) { return wrapped(a, b, std::multiplies<>{}); },
                  [](float a, float b) { return a * b; }, nullptr};
/// Integer quotients are truncated towards zero, and undefined ones are 0.
const Binary kDiv{[](std::int64_t a, std::int64_t b) { return divides(a, b) ? a / b : 0; },
                  [](float a, float b) { return a / b; }, nullptr};
const Binary kPow{[](std::int64_t a, std::int64_t b) {
                    return static_cast<std::int64_t>(
                        std::clamp(std::pow(static_cast<double>(a), static_cast<double>(b)), -9e18, 9e18));
                  },
                  [](float a, float b) { return std::pow(a, b); }, nullptr};
const Binary kMax{[](std::int64_t a, std::int64_t b) { return std::max(a, b); },
                  [](float a, float b) { return std::max(a, b); }, nullptr};
const Binary kMin{[](std::int64_t a, std::int64_t b) { return std::min(a, b); },
                  [](float a, float b) { return std::min(a, b); }, nullptr};
/// The result has the sign of the divisor, as with Python's %.
const Binary kMod{[](std::int64_t a, std::int64_t b) {
                    if (!divides(a, b)) {
                      return std::int64_t{0};
                    }
                    const std::int64_t rest = a % b;
                    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
                  },
                  [](float a, float b) {
                    const float rest = std::fmod(a, b);
                    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
                  },
                  nullptr};
/// The result has the sign of the dividend, as with C's %.
const Binary kTruncatedMod{[](std::int64_t a, std::int64_t b) { return divides(a, b) ? a % b : std::int64_t{0}; },
                           [](float a, float b) { return std::fmod(a, b); }, nullptr};

const Binary kEqual{nullptr, nullptr, [](double a, double b) { return a == b; }};
const Binary kGreater{nullptr, nullptr, [](double a, double b) { return a > b; }};
const Binary kGreaterOrEqual{nullptr, nullptr, [](double a, double b) { return a >= b; }};
const Binary kLess{nullptr, nullptr, [](double a, double b) { return a < b; }};
const Binary kLessOrEqual{nullptr, nullptr, [](double a, double b) { return a <= b; }};
const Binary kAnd{nullptr, nullptr, [](double a, double b) { return a != 0 && b != 0; }};
const Binary kOr{nullptr, nullptr, [](double a, double b) { return a != 0 || b != 0; }};
const Binary kXor{nullptr, nullptr, [](double a, double b) { return (a != 0) != (b != 0); }};

/// Aligns the second operand with dimension `axis` of the first, as `broadcast` = 1 requests before opset 7.
Result<TensorId> aligned(Node& node, TensorId a, TensorId b) {
  const std::size_t rank = node.type(a).shape.size();
  const Shape& own = node.type(b).shape;
  if (node.opset() >= 7 || !node.has_attribute("axis") || own.size() >= rank) {
    return b;
  }
  POPRUN_ASSIGN(const std::size_t axis, normal_axis(node.integer("axis", 0), rank));
  if (axis + own.size() > rank) {
    return node.wrong("the second operand extends beyond the dimensions of the first");
  }
  Shape shape = own;
  shape.resize(rank - axis, 1);
  return node.reshape(b, shape);
}

/// Adds an operation on two device tensors. If one has more dimensions than an image, both become row-major.
Result<TensorId> combine(Node& node, const std::string& kind, TensorId a, TensorId b) {
  const std::size_t rank = std::max(node.type(a).shape.size(), node.type(b).shape.size());
  if (rank > 4) {
    POPRUN_ASSIGN(a, node.row_major_of(a));
    POPRUN_ASSIGN(b, node.row_major_of(b));
  }
  const bool compares = kind == "equal" || kind == "greater" || kind == "greater_equal";
  return compares ? node.add(kind, {a, b}) : node.add_as_reals(kind, {a, b});
}

Status combine_all(Node& node, const std::string& kind, const Binary& function) {
  if (node.folds()) {
    Constant result = *node.value(0).constant;
    for (std::size_t i = 1; i < node.inputs(); ++i) {
      POPRUN_ASSIGN(result, folded(result, *node.value(i).constant, function));
    }
    node.set(0, std::move(result));
    return {};
  }
  POPRUN_ASSIGN(TensorId result, node.tensor(0));
  for (std::size_t i = 1; i < node.inputs(); ++i) {
    POPRUN_ASSIGN(TensorId next, node.tensor(i));
    POPRUN_ASSIGN(next, aligned(node, result, next));
    POPRUN_ASSIGN(result, combine(node, kind, result, next));
  }
  const bool compares = function.compares != nullptr;
  node.set(0, result, compares ? Element{Proto::BOOL} : node.element(0));
  return {};
}

Status mean(Node& node) {
  POPRUN_ASSIGN(TensorId total, node.tensor(0));
  for (std::size_t i = 1; i < node.inputs(); ++i) {
    POPRUN_ASSIGN(const TensorId next, node.tensor(i));
    POPRUN_ASSIGN(total, combine(node, "add", total, next));
  }
  POPRUN_ASSIGN(const TensorId factor, node.fill({}, 1.0 / static_cast<double>(node.inputs())));
  return node.set_result(node.add("mul", {total, factor}));
}

/// Raises x to the power of input 1, a number known at import. For 2 and 0.5, uses a faster product or square root.
Result<TensorId> known_power(Node& node, TensorId x) {
  POPRUN_ASSIGN(const float exponent, node.real_of(1));
  if (exponent == 2.0F) {
    return node.add("mul", {x, x});
  }
  if (exponent == 0.5F) {
    return node.add("sqrt", {x});
  }
  POPRUN_ASSIGN(const TensorId e, node.fill({}, static_cast<double>(exponent)));
  return node.add("pow", {x, e});
}

/// Raises input 0 to the power of input 1, whose type may differ. The result has the type of the base.
Status pow(Node& node) {
  if (node.folds() && is_real(node.element(0)) == is_real(node.element(1))) {
    return combine_all(node, "pow", kPow);
  }
  const Value& exponent = node.value(1);
  const bool known = exponent.constant != nullptr && !exponent.sample && exponent.constant->elements() == 1 &&
                     exponent.constant->shape.empty() && !exponent.verdict.learnt;
  POPRUN_ASSIGN(const TensorId x, node.tensor(0));
  POPRUN_ASSIGN(const TensorId y, node.on_reals(x, [&](TensorId base) -> Result<TensorId> {
    if (known) {
      return known_power(node, base);
    }
    POPRUN_ASSIGN(TensorId e, node.tensor(1));
    if (node.type(e).data == DataType::kI32) {
      POPRUN_ASSIGN(e, node.to_reals(e));
    }
    return combine(node, "pow", base, e);
  }));
  node.set(0, y, node.element(0));
  return {};
}

Status mod(Node& node) {
  return node.integer("fmod", 0) != 0 ? combine_all(node, "fmod", kTruncatedMod) : combine_all(node, "mod", kMod);
}

/// Compares the first input with the second or, if `swapped` is set, the second with the first.
Status compare(Node& node, const std::string& kind, const Binary& function, bool swapped) {
  if (node.folds()) {
    return combine_all(node, kind, function);
  }
  POPRUN_ASSIGN(const TensorId a, node.tensor(0));
  POPRUN_ASSIGN(TensorId b, node.tensor(1));
  POPRUN_ASSIGN(b, aligned(node, a, b));
  return node.set_result(swapped ? combine(node, kind, b, a) : combine(node, kind, a, b), Proto::BOOL);
}

/// Computes (a - b)^2, which is 1 if two bools differ and otherwise 0.
Status xor_of(Node& node) {
  if (node.folds()) {
    return combine_all(node, "", kXor);
  }
  POPRUN_ASSIGN(const TensorId a, node.tensor(0));
  POPRUN_ASSIGN(TensorId b, node.tensor(1));
  POPRUN_ASSIGN(b, aligned(node, a, b));
  POPRUN_ASSIGN(const TensorId difference, combine(node, "sub", a, b));
  return node.set_result(node.add("mul", {difference, difference}), Proto::BOOL);
}

Status not_of(Node& node) {
  if (node.folds()) {
    Constant y = *node.value(0).constant;
    std::ranges::transform(y.integers, y.integers.begin(), [](std::int64_t v) { return v == 0 ? 1 : 0; });
    node.set(0, std::move(y));
    return {};
  }
  POPRUN_ASSIGN(const TensorId x, node.tensor(0));
  POPRUN_ASSIGN(const TensorId one, node.fill({}, 1));
  return node.set_result(node.add("sub", {one, x}), Proto::BOOL);
}

Status fold_where(Node& node) {
  const Constant& mask = *node.value(0).constant;
  POPRUN_ASSIGN(const Constant a,
                folded(*node.value(1).constant, *node.value(2).constant,
                       {[](std::int64_t x, std::int64_t) { return x; }, [](float x, float) { return x; }, nullptr}));
  POPRUN_ASSIGN(const Constant b,
                folded(*node.value(1).constant, *node.value(2).constant,
                       {[](std::int64_t, std::int64_t y) { return y; }, [](float, float y) { return y; }, nullptr}));
  POPRUN_ASSIGN(const Constant any,
                folded(mask, cast(a, Proto::BOOL), {nullptr, nullptr, [](double, double) { return true; }}));
  const Constant chosen = expanded(mask, any.shape);
  Constant y = expanded(a, any.shape);
  const Constant otherwise = expanded(b, any.shape);
  for (std::int64_t i = 0; i < y.elements(); ++i) {
    if (chosen.integer_at(i) == 0) {
      const auto at = static_cast<std::size_t>(i);
      if (y.real()) {
        y.reals[at] = otherwise.reals[at];
      } else {
        y.integers[at] = otherwise.integers[at];
      }
    }
  }
  node.set(0, std::move(y));
  return {};
}

Status where(Node& node) {
  if (node.folds()) {
    return fold_where(node);
  }
  POPRUN_ASSIGN(TensorId mask, node.tensor(0));
  POPRUN_ASSIGN(TensorId a, node.tensor(1));
  POPRUN_ASSIGN(TensorId b, node.tensor(2));
  const std::size_t rank =
      std::max({node.type(mask).shape.size(), node.type(a).shape.size(), node.type(b).shape.size()});
  if (rank > 4) {
    POPRUN_ASSIGN(mask, node.row_major_of(mask));
    POPRUN_ASSIGN(a, node.row_major_of(a));
    POPRUN_ASSIGN(b, node.row_major_of(b));
  }
  return node.set_result(node.add_as_reals("where", {mask, a, b}), node.element(1));
}

}  // namespace

std::vector<Translator> translators() {
  return {{"Add", 2, [](Node& node) { return combine_all(node, "add", kAdd); }},
          {"Sub", 2, [](Node& node) { return combine_all(node, "sub", kSub); }},
          {"Mul", 2, [](Node& node) { return combine_all(node, "mul", kMul); }},
          {"Div", 2, [](Node& node) { return combine_all(node, "div", kDiv); }},
          {"Pow", 2, pow},
          {"Mod", 2, mod},
          {"Sum", 1, [](Node& node) { return combine_all(node, "add", kAdd); }},
          {"Max", 1, [](Node& node) { return combine_all(node, "max", kMax); }},
          {"Min", 1, [](Node& node) { return combine_all(node, "min", kMin); }},
          {"Mean", 1, mean},
          {"Equal", 2, [](Node& node) { return compare(node, "equal", kEqual, false); }},
          {"Greater", 2, [](Node& node) { return compare(node, "greater", kGreater, false); }},
          {"GreaterOrEqual", 2, [](Node& node) { return compare(node, "greater_equal", kGreaterOrEqual, false); }},
          {"Less", 2, [](Node& node) { return compare(node, "greater", kLess, true); }},
          {"LessOrEqual", 2, [](Node& node) { return compare(node, "greater_equal", kLessOrEqual, true); }},
          {"And", 2, [](Node& node) { return combine_all(node, "mul", kAnd); }},
          {"Or", 2, [](Node& node) { return combine_all(node, "max", kOr); }},
          {"Xor", 2, xor_of},
          {"Not", 1, not_of},
          {"Where", 3, where}};
}

}  // namespace poprun::onnx_import::nodes::elementwise
