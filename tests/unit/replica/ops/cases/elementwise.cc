#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <limits>
#include <numbers>

#include "replica/base/random.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/face/random_name.h"
#include "tests/unit/replica/ops/case.h"

/// Operators that work element by element.
namespace poprun::testing {
namespace {

using Function = std::function<double(double)>;
using Function2 = std::function<double(double, double)>;

Definition each(const Function& f) {
  return [f](const Arrays& in, const Attributes& /*a*/) {
    Array y = in[0];
    std::ranges::transform(y.values, y.values.begin(), f);
    return Arrays{y};
  };
}

Shape broadcast_shape_of(const Arrays& in) {
  Shape shape;
  for (const Array& x : in) {
    shape.insert(shape.begin(), std::max(shape.size(), x.shape.size()) - shape.size(), 1);
    for (std::size_t d = 0; d < x.shape.size(); ++d) {
      std::int64_t& size = shape[shape.size() - x.shape.size() + d];
      size = std::max(size, x.shape[d]);
    }
  }
  return shape;
}

Definition each2(const Function2& f) {
  return [f](const Arrays& in, const Attributes& /*a*/) {
    Array y(broadcast_shape_of(in));
    for_each_index(y.shape, [&](const Shape& index) { y(index) = f(in[0].broadcast(index), in[1].broadcast(index)); });
    return Arrays{y};
  };
}

/// A function of one element, the range in which it is tested, and whether its values or slopes cancel.
struct Row {
  std::string kind;
  Function of;
  double low = -4;
  double high = 4;
  Attributes attributes = {};
  double terms = 1;
};

/// Adds both passes of a function. 43 elements are not a whole number of vectors.
void add_function(std::vector<Case>& all, const Row& row, const Shape& shape) {
  const Definition definition = each(row.of);
  const Error error{.relative = 0x1p-18, .terms = row.terms};
  const Input x = shape.size() == 4 ? half_image(shape, row.low, row.high) : half(shape, row.low, row.high);
  const Input dy = shape.size() == 4 ? half_image(shape) : half(shape);
  all.push_back({row.kind, {x}, row.attributes, definition, error});
  all.push_back({row.kind + "_gradient", {x, dy}, row.attributes, gradient_of(definition), error});
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

std::vector<Row> functions() {
  const double kSelu = 1.0507009873554805;
  const double kSeluAlpha = 1.6732632423543772;
  return {
      {"sign", [](double x) { return x > 0   ? 1.0
                                     : x < 0 ? -1.0
                                             : 0.0; }},
      {"floor", [](double x) { return std::floor(x); }},
      {"ceil", [](double x) { return std::ceil(x); }},
      {"round", [](double x) { return std::nearbyint(x); }},
      {"reciprocal", [](double x) { return 1 / x; }, 0.1, 4},
      {"reciprocal", [](double x) { return 1 / x; }, 1e-6, 4e-5},  // Partly infinite in half.
      {"log", [](double x) { return std::log(x); }, 0.1, 4},
      {"erf", [](double x) { return std::erf(x); }},
      {"sin", [](double x) { return std::sin(x); }},
      {"cos", [](double x) { return std::cos(x); }},
      {"tan", [](double x) { return std::tan(x); }, -1.4, 1.4},
      {"asin", [](double x) { return std::asin(x); }, -0.95, 0.95},
      {"acos", [](double x) { return std::acos(x); }, -0.95, 0.95},
      {"atan", [](double x) { return std::atan(x); }},
      {"sinh", [](double x) { return std::sinh(x); }, -13, 13},  // Results up to infinity.
      {"cosh", [](double x) { return std::cosh(x); }, -13, 13},
      {"asinh", [](double x) { return std::asinh(x); }},
      {"acosh", [](double x) { return std::acosh(x); }, 1.1, 4},
      {"atanh", [](double x) { return std::atanh(x); }, -0.95, 0.95},
      {"softsign", [](double x) { return x / (1 + std::abs(x)); }},
      {"clip", [](double x) { return std::clamp(x, -1.25, 2.5); }, -4, 4, {{"min", -1.25}, {"max", 2.5}}},
      {"hard_sigmoid",
       [](double x) { return std::clamp(0.25 * x + 0.5, 0.0, 1.0); },
       -4,
       4,
       {{"alpha", 0.25}, {"beta", 0.5}}},
      {"hard_swish", [](double x) { return x * std::clamp(x + 3, 0.0, 6.0) / 6; }},
      {"thresholded_relu", [](double x) { return x > 0.75 ? x : 0.0; }, -4, 4, {{"alpha", 0.75}}},
      {"celu", [](double x) { return x > 0 ? x : 1.5 * std::expm1(x / 1.5); }, -4, 4, {{"alpha", 1.5}}},
      {"shrink",
       [](double x) { return x < -1  ? x + 0.25
                             : x > 1 ? x - 0.25
                                     : 0.0; },
       -4,
       4,
       {{"bias", 0.25}, {"lambd", 1.0}}},
      {"gelu", [](double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); }, -4, 4, {}, 4},
      {"gelu_tanh",
       [](double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); },
       -4,
       4,
       {},
       4},
      {"tanh", [](double x) { return std::tanh(x); }, -4, 4, {}, 8},
      {"sigmoid", sigmoid, -4, 4, {}, 4},
      {"exp", [](double x) { return std::exp(x); }, -16, 12},  // From subnormal to infinite.
      {"sqrt", [](double x) { return std::sqrt(x); }, 0.1, 60000},
      {"neg", [](double x) { return -x; }},
      {"mish", [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }, -4, 4, {}, 4},
      {"abs", [](double x) { return std::abs(x); }},
      {"leaky_relu", [](double x) { return x > 0 ? x : 0.125 * x; }, -4, 4, {{"alpha", 0.125}}},
      {"elu", [](double x) { return x > 0 ? x : 0.75 * std::expm1(x); }, -4, 4, {{"alpha", 0.75}}, 4},
      {"selu", [=](double x) { return kSelu * (x > 0 ? x : kSeluAlpha * std::expm1(x)); }, -4, 4, {}, 4},
      {"softplus", [](double x) { return std::log1p(std::exp(x)); }, -12, 12},
  };
}

/// Adds a function of two operands with every kind of broadcasting and mixture of layouts.
void add_binary(std::vector<Case>& all, const std::string& kind, const Function2& f, const Scales& scales,
                double low = -2, double high = 2) {
  const auto add = [&](const Input& a, const Input& b) {
    all.push_back({kind, {a, b}, {}, each2(f), {.relative = 0x1p-20, .terms = 1}, scales});
  };
  add(half({43}, low, high), half({43}, low, high));
  add(half({3, 1, 5}, low, high), half({4, 1}, low, high));
  add(half({2, 7}, low, high), half({}, low, high));
  add(half_image({2, 3, 3, 5}, low, high), half({3, 1, 1}, low, high));
  add(half({1, 3, 3, 5}, low, high), half_image({2, 3, 1, 1}, low, high));
}

/// Returns dy times the derivative with respect to operand k, as KIND_by_k computes it.
Function2 derivative(const Function2& f, int k) {
  return [f, k](double a, double b) {
    const double h = 1e-5;
    return k == 0 ? (f(a + h, b) - f(a - h, b)) / (2 * h) : (f(a, b + h) - f(a, b - h)) / (2 * h);
  };
}

void add_binaries(std::vector<Case>& all) {
  add_binary(
      all, "add", [](double a, double b) { return a + b; }, kAll);
  add_binary(
      all, "sub", [](double a, double b) { return a - b; }, kAll);
  add_binary(
      all, "mul", [](double a, double b) { return a * b; }, kAll);
  add_binary(
      all, "div", [](double a, double b) { return a / b; }, kAll);
  const auto with_partials = [&](const std::string& kind, const Function2& f, double low, double high,
                                 const Scales& scales) {
    add_binary(all, kind, f, scales, low, high);
    add_binary(all, kind + "_by_0", derivative(f, 0), kUsual, low, high);
    add_binary(all, kind + "_by_1", derivative(f, 1), kUsual, low, high);
  };
  with_partials(
      "max", [](double a, double b) { return std::max(a, b); }, -2, 2, kAll);
  with_partials(
      "min", [](double a, double b) { return std::min(a, b); }, -2, 2, kAll);
  with_partials(
      "prelu", [](double a, double b) { return a > 0 ? a : a * b; }, -2, 2, kAll);
  add_binary(
      all, "fmod", [](double a, double b) { return std::fmod(a, b); }, kUsual, 0.25, 3);
  add_binary(
      all, "mod", [](double a, double b) { return a - b * std::floor(a / b); }, kUsual, -3, -0.25);
  with_partials(
      "pow", [](double a, double b) { return std::pow(a, b); }, 0.125, 3, kUsual);
  // 300 squared is infinite; squares are computed separately.
  all.push_back({"pow", {half({9}, -300, 300), given(half({}), {2})}, {}, each2([](double a, double b) {
                   return std::pow(a, b);
                 })});
}

Array choose(const Arrays& in) {
  Array y(broadcast_shape_of(in));
  for_each_index(y.shape,
                 [&](const Shape& index) { y(index) = in[in[0].broadcast(index) != 0 ? 1 : 2].broadcast(index); });
  return y;
}

void add_choices(std::vector<Case>& all) {
  // Both operands contain the same numbers, so that some elements are equal.
  const Input few = given(half({2, 3}), {1, 2, 3, 1, 2, 3});
  const Input more = given(half({3}), {1, 3, 2});
  const auto compare = [&](const std::string& kind, const Function2& f) {
    all.push_back({kind, {few, more}, {}, each2(f), kExact});
    all.push_back({kind, {half({43}), half({43})}, {}, each2(f), kExact, kAll});
  };
  compare("equal", [](double a, double b) { return a == b ? 1.0 : 0.0; });
  compare("greater", [](double a, double b) { return a > b ? 1.0 : 0.0; });
  compare("greater_equal", [](double a, double b) { return a >= b ? 1.0 : 0.0; });
  const Input mask = given(half({5}), {0, 1, 0, 0x1p-24, -0.0});
  for (const std::vector<Input>& inputs :
       {std::vector{mask, half({3, 5}), half({3, 1})}, std::vector{mask, half({5}), half({5})}}) {
    all.push_back(
        {"where", inputs, {}, [](const Arrays& in, const Attributes&) { return Arrays{choose(in)}; }, kExact, kAll});
  }
}

Input bytes(Shape shape, std::vector<double> values) {
  return {{DataType::kU8, std::move(shape), Layout::kRowMajor}, 0, 0, std::move(values)};
}

void add_conversions(std::vector<Case>& all) {
  const Attributes to_integers{{"to", std::string{"i32"}}};
  const Attributes to_bytes{{"to", std::string{"u8"}}};
  const Attributes to_reals{{"to", std::string{"f32"}}};
  const double inf = std::numeric_limits<double>::infinity();
  all.push_back({"cast",
                 {given(half({5}), {-2.75, 65504, 0.5, inf, std::nan("")})},
                 to_integers,
                 each([=](double x) { return std::isnan(x) ? 0 : std::min(std::trunc(x), 2147483647.0); }),
                 kExact});
  all.push_back({"cast",
                 {given(half({4}), {-2.75, 300, 17.5, 255})},
                 to_bytes,
                 each([](double x) { return std::clamp(std::trunc(x), 0.0, 255.0); }),
                 kExact});
  const Definition same = each([](double x) { return x; });
  all.push_back({"cast", {half({43})}, to_reals, same, kExact, kAll});
  all.push_back({"cast", {bytes({3}, {0, 17, 255})}, to_reals, same, kExact});
  // Integers are rounded beyond 2,048 and infinite beyond 65,519.
  all.push_back({"cast",
                 {indices({6}, {2049, 2051, -65519, 65520, 16777217, -3})},
                 to_reals,
                 same,
                 {.relative = 0x1p-24, .terms = 0}});
  all.push_back({"one_hot",
                 {indices({2, 3}, {0, 3, -1, 4, -5, 2})},
                 {{"depth", std::int64_t{4}}, {"on", 0.1}, {"off", -1e-7}},
                 [](const Arrays& in, const Attributes&) {
                   Array y({2, 3, 4}, -1e-7);
                   for_each_index(y.shape, [&](const Shape& i) {
                     const double index = in[0]({i[0], i[1]});
                     if ((index < 0 ? index + 4 : index) == static_cast<double>(i[2])) {
                       y(i) = 0.1;
                     }
                   });
                   return Arrays{y};
                 },
                 {.relative = 0x1p-24, .terms = 0}});
  all.push_back({"normalize",
                 {bytes({1, 2, 1, 3}, {0, 1, 127, 200, 254, 255})},
                 {{"mean", 0.45}, {"deviation", 0.225}},
                 each([](double x) { return (x / 255 - 0.45) / 0.225; }),
                 {.relative = 0x1p-22, .terms = 4}});
}

void add_constants(std::vector<Case>& all) {
  for (const double value : {0.1, 65519.0, 65520.0, -1e9, 1e-8, 3e-8}) {
    all.push_back({"fill",
                   {},
                   {{"shape", Shape{3, 5}}, {"value", value}},
                   [value](const Arrays&, const Attributes&) {
                     return Arrays{Array({3, 5}, value)};
                   },
                   {.relative = 0x1p-24, .terms = 0}});
  }
  const std::vector<double> values = {0.1, -65519, 65520, 1e-8, 2047.7, 0};
  all.push_back({"constant",
                 {},
                 {{"shape", Shape{2, 3}}, {"values", values}},
                 [values](const Arrays&, const Attributes&) {
                   Array y({2, 3});
                   y.values = values;
                   return Arrays{y};
                 },
                 {.relative = 0x1p-24, .terms = 0}});
}

/// Drops the elements that the float32 kernel drops; dropout_test checks which these are.
Array dropped(const Array& x, const Attributes& a) {
  const TensorType type{DataType::kF32, x.shape, Layout::kRowMajor};
  struct alignas(64) Floats {
    float values[64];
  } ones{};
  Floats kept{};
  std::fill_n(ones.values, x.values.size(), 1.0F);
  Operands operands;
  operands.inputs = {reinterpret_cast<const std::byte*>(ones.values)};  // NOLINT: its bytes.
  operands.outputs = {reinterpret_cast<std::byte*>(kept.values)};       // NOLINT: the same.
  operands.moment = &kMoment;
  find_operator("dropout")->numerics({{type}, {type}, a})->run(operands);
  Array y = x;
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    y.values[i] = kept.values[i] == 0 ? 0 : x.values[i] / (1 - a.real("rate"));
  }
  return y;
}

/// Rotates the points (x[i], x[i + d/2]) as complex numbers.
Arrays rotary(const Arrays& in, const Attributes& a) {
  const std::int64_t half_size = in[0].shape.back() / 2;
  const double sign = a.has("reversed") && a.integer("reversed") != 0 ? -1 : 1;
  Array y(in[0].shape);
  for_each_index(y.shape, [&](const Shape& i) {
    const bool first = i.back() < half_size;
    const Shape at = {i[i.size() - 2], i.back() % half_size};
    Shape other = i;
    other.back() += first ? half_size : -half_size;
    y(i) = in[0](i) * in[1](at) + (first ? -sign : sign) * in[0](other) * in[2](at);
  });
  return {y};
}

void add_rotary(std::vector<Case>& all) {
  const Error error{.relative = 0x1p-21, .terms = 4};
  all.push_back({"rotary", {half({2, 3, 22}), single({3, 11}), single({3, 11})}, {}, rotary, error, kUsual});
  all.push_back({"rotary",
                 {half({1, 2, 5, 2}), single({5, 1}), single({5, 1})},
                 {{"reversed", std::int64_t{1}}},
                 rotary,
                 error,
                 kUsual});
}

/// Returns the upper 24 bits of random words, as numbers in [0, 1); random_test checks their distribution.
Arrays uniform_numbers(const Arrays& /*in*/, const Attributes& a) {
  Array y(a.integers("shape"));
  const std::uint64_t key = key_of(kMoment, a.text("key"));
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    y.values[i] = (philox(key, i / 4, 0).at(i % 4) >> 8U) * 0x1p-24;
  }
  return {y};
}

/// Returns the real and imaginary parts of complex normal numbers; random_test checks their distribution.
Arrays normal_numbers(const Arrays& /*in*/, const Attributes& a) {
  Array y(a.integers("shape"));
  const std::uint64_t key = key_of(kMoment, a.text("key"));
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const auto words = philox(key, i / 4, 0);
    const std::size_t k = i % 4 / 2 * 2;
    const double radius = std::sqrt(-2 * std::log((words.at(k) + 1.0) / 0x1p32));
    const auto z = std::polar(radius, 2 * std::numbers::pi * words.at(k + 1) / 0x1p32);
    y.values[i] = i % 2 == 0 ? z.real() : z.imag();
  }
  return {y};
}

}  // namespace

std::vector<Case> elementwise_cases() {
  std::vector<Case> all;
  for (const Row& row : functions()) {
    add_function(all, row, {43});
    add_function(all, row, {1, 3, 2, 5});
  }
  const Definition relu = each([](double x) { return x > 0 ? x : 0; });
  all.push_back({"relu", {half({43})}, {}, relu, kExact, kAll});
  all.push_back({"relu", {half_image({2, 3, 1, 5})}, {}, relu, kExact, kAll});
  all.push_back({"relu_gradient",
                 {half({43}), half({43})},
                 {},
                 each2([](double y, double dy) { return y > 0 ? dy : 0; }),
                 kExact,
                 kAll});
  add_binaries(all);
  add_choices(all);
  add_conversions(all);
  add_constants(all);
  add_rotary(all);
  all.push_back({"dropout",
                 {half({3, 17})},
                 {{"rate", 0.3}, {"key", std::string{"d"}}},
                 [](const Arrays& in, const Attributes& a) { return Arrays{dropped(in[0], a)}; },
                 {.relative = 0x1p-22, .terms = 0},
                 kAll});
  all.push_back({"random_uniform",
                 {},
                 {{"shape", Shape{3, 17}}, {"key", std::string{"u"}}},
                 uniform_numbers,
                 {.relative = 0x1p-22, .terms = 0}});
  all.push_back({"random_normal",
                 {},
                 {{"shape", Shape{3, 17}}, {"key", std::string{"n"}}},
                 normal_numbers,
                 {.relative = 0x1p-22, .terms = 0}});
  const std::pair<const char*, std::uint32_t (*)(std::uint32_t, std::uint32_t)> kBits[] = {
      {"bit_and", [](std::uint32_t a, std::uint32_t b) { return a & b; }},
      {"bit_or", [](std::uint32_t a, std::uint32_t b) { return a | b; }},
      {"bit_xor", [](std::uint32_t a, std::uint32_t b) { return a ^ b; }},
      {"shift_left", [](std::uint32_t a, std::uint32_t b) { return b > 31 ? 0 : a << b; }},
      {"shift_right", [](std::uint32_t a, std::uint32_t b) { return b > 31 ? 0 : a >> b; }}};
  for (const auto& [kind, function] : kBits) {
    all.push_back({kind,
                   {indices({2, 3}, {5, 6, 7, -1, 12345, 0}), indices({3}, {3, 1, 32})},
                   {},
                   [f = function](const Arrays& in, const Attributes&) {
                     Array y({2, 3});
                     for_each_index(y.shape, [&](const Shape& i) {
                       const auto bits = [](double x) {
                         return static_cast<std::uint32_t>(static_cast<std::int32_t>(x));
                       };
                       y(i) = static_cast<std::int32_t>(f(bits(in[0](i)), bits(in[1]({i[1]}))));
                     });
                     return Arrays{y};
                   },
                   kExact});
  }
  all.push_back({"round_through", {half({43}, -9, 9)}, {}, each([](double x) { return std::nearbyint(x); }), kExact});
  all.back().differentiable = false;  // Its gradient is that of x, not of the steps.
  return all;
}

}  // namespace poprun::testing
