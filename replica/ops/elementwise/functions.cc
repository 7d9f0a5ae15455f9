#include <array>
#include <cmath>
#include <limits>

#include "replica/ops/elementwise/function_table.h"

/// Elementwise functions (function_table.h) that oneDNN does not provide or does not compute exactly. Results come from
/// the C library unless stated otherwise. Step functions (sign, floor, ceil, round) have gradient 0. NaN stays NaN.
namespace poprun::ops::functions {
namespace {

struct Parameter {
  const char* name;  ///< The attribute's name, or null if there is no such parameter.
  float value;       ///< The attribute's default.
};

struct Function {
  const char* kind;
  float (*value)(float x, float a, float b);
  float (*slope)(float x, float a, float b);
  std::int64_t flops;
  Parameter a = {nullptr, 0};
  Parameter b = {nullptr, 0};
};

constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kTwoOverRootPi = 1.1283791670955126F;

float zero(float /*x*/, float /*a*/, float /*b*/) {
  return 0;
}

/// Computes erf(x) as x p(x^2) / q(x^2), with a relative error of 4e-7. p / q is the quotient of polynomials of degree
/// 5 that is closest to erf(x) / x on [0, 3.85]; beyond 3.85, erf is 1 in float. Unlike the C library's erf, this code
/// vectorises, which matters because exported models compute gelu with erf.
float error_function(float x, float /*a*/, float /*b*/) {
  // The bounds are applied one at a time, because g++ does not vectorise nested conditionals.
  const float above = x < -3.85F ? -3.85F : x;
  const float c = above > 3.85F ? 3.85F : above;
  const float s = c * c;
  float p = 2.108262491e-6F;
  p = p * s + 2.856737382e-4F;
  p = p * s + 3.673936785e-3F;
  p = p * s + 5.247972259e-2F;
  p = p * s + 1.878980159e-1F;
  p = p * s + 1.128379151F;
  float q = 3.873168120e-5F;
  q = q * s + 1.145500178e-3F;
  q = q * s + 1.478490645e-2F;
  q = q * s + 1.131290679e-1F;
  q = q * s + 4.998531557e-1F;
  q = q * s + 1.0F;
  const float y = c * p / q;
  const float bounded = y < -1.0F ? -1.0F : y;
  return bounded > 1.0F ? 1.0F : bounded;
}

constexpr std::array kFunctions = {
    Function{"sign", [](float x, float, float) { return x > 0   ? 1.0F
                                                        : x < 0 ? -1.0F
                                                                : x; }, zero, 2},
    Function{"floor", [](float x, float, float) { return std::floor(x); }, zero, 1},
    Function{"ceil", [](float x, float, float) { return std::ceil(x); }, zero, 1},
    // Rounds to the nearest integer, ties to even.
    Function{"round", [](float x, float, float) { return std::nearbyint(x); }, zero, 1},
    Function{"reciprocal", [](float x, float, float) { return 1 / x; },
             [](float x, float, float) { return -1 / (x * x); }, 4},
    Function{"log", [](float x, float, float) { return std::log(x); }, [](float x, float, float) { return 1 / x; }, 8},
    Function{"erf", error_function, [](float x, float, float) { return kTwoOverRootPi * std::exp(-x * x); }, 8},
    Function{"sin", [](float x, float, float) { return std::sin(x); },
             [](float x, float, float) { return std::cos(x); }, 8},
    Function{"cos", [](float x, float, float) { return std::cos(x); },
             [](float x, float, float) { return -std::sin(x); }, 8},
    Function{"tan", [](float x, float, float) { return std::tan(x); },
             [](float x, float, float) { return 1 / (std::cos(x) * std::cos(x)); }, 8},
    Function{"asin", [](float x, float, float) { return std::asin(x); },
             [](float x, float, float) { return 1 / std::sqrt(1 - x * x); }, 8},
    Function{"acos", [](float x, float, float) { return std::acos(x); },
             [](float x, float, float) { return -1 / std::sqrt(1 - x * x); }, 8},
    Function{"atan", [](float x, float, float) { return std::atan(x); },
             [](float x, float, float) { return 1 / (1 + x * x); }, 8},
    Function{"sinh", [](float x, float, float) { return std::sinh(x); },
             [](float x, float, float) { return std::cosh(x); }, 8},
    Function{"cosh", [](float x, float, float) { return std::cosh(x); },
             [](float x, float, float) { return std::sinh(x); }, 8},
    Function{"asinh", [](float x, float, float) { return std::asinh(x); },
             [](float x, float, float) { return 1 / std::sqrt(x * x + 1); }, 8},
    Function{"acosh", [](float x, float, float) { return std::acosh(x); },
             [](float x, float, float) { return 1 / std::sqrt(x * x - 1); }, 8},
    Function{"atanh", [](float x, float, float) { return std::atanh(x); },
             [](float x, float, float) { return 1 / (1 - x * x); }, 8},
    // x / (1 + |x|)
    Function{"softsign", [](float x, float, float) { return x / (1 + std::abs(x)); },
             [](float x, float, float) { return 1 / ((1 + std::abs(x)) * (1 + std::abs(x))); }, 6},
    // ln(1 + exp(x))
    Function{"softplus", [](float x, float, float) { return (x > 0 ? x : x * 0) + std::log1p(std::exp(-std::abs(x))); },
             [](float x, float, float) { return 1 / (1 + std::exp(-x)); }, 16},
    // x limited to [min, max], or max if min > max; the derivative is 1 from min to max inclusive
    Function{"clip",
             [](float x, float low, float high) {
               const float y = x < low ? low : x;
               return y > high ? high : y;
             },
             [](float x, float low, float high) { return x >= low && x <= high ? 1.0F : 0.0F; },
             2,
             {"min", kLowest},
             {"max", kLargest}},
    // alpha x + beta, limited to [0, 1]
    Function{"hard_sigmoid",
             [](float x, float a, float b) {
               const float y = a * x + b;
               return y < 0 ? 0.0F : y > 1 ? 1.0F : y;
             },
             [](float x, float a, float b) {
               const float y = a * x + b;
               return y > 0 && y < 1 ? a : 0.0F;
             },
             4,
             {"alpha", 0.2F},
             {"beta", 0.5F}},
    // x / 6 * (x + 3 limited to [0, 6])
    Function{"hard_swish", [](float x, float, float) { return x < -3  ? 0.0F
                                                              : x > 3 ? x
                                                                      : x * (x + 3) / 6; },
             [](float x, float, float) { return x < -3  ? 0.0F
                                                : x > 3 ? 1.0F
                                                        : (2 * x + 3) / 6; }, 4},
    // x > alpha ? x : 0
    Function{"thresholded_relu",
             [](float x, float a, float) { return x <= a ? 0.0F : x; },
             [](float x, float a, float) { return x > a ? 1.0F : 0.0F; },
             1,
             {"alpha", 1}},
    // x > 0 ? x : alpha (exp(x / alpha) - 1): Barron, "Continuously differentiable exponential linear units", 2017
    Function{"celu",
             [](float x, float a, float) { return x > 0 ? x : a * std::expm1(x / a); },
             [](float x, float a, float) { return x > 0 ? 1.0F : std::exp(x / a); },
             10,
             {"alpha", 1}},
    // x moved by bias towards 0 if |x| > lambd, else 0
    Function{"shrink",
             [](float x, float bias, float lambd) { return x < -lambd  ? x + bias
                                                           : x > lambd ? x - bias
                                                                       : x * 0; },
             [](float x, float, float lambd) { return x < -lambd || x > lambd ? 1.0F : 0.0F; },
             3,
             {"bias", 0},
             {"lambd", 0.5F}},
};

float value_of(const Parameter& parameter, const Attributes& attributes) {
  return parameter.name != nullptr && attributes.has(parameter.name)
             ? static_cast<float>(attributes.real(parameter.name))
             : parameter.value;
}

struct Numerics {
  static std::vector<std::size_t> backward_in_place() { return {0, 1}; }

  template <std::size_t row>
  static std::unique_ptr<Kernel> forward(const Signature& s) {
    return make_kernel([n = s.inputs[0].elements(), a = value_of(kFunctions[row].a, s.attributes),
                        b = value_of(kFunctions[row].b, s.attributes)](const Operands& t) {
      const float* x = t.input_f32(0);
      float* y = t.output_f32(0);
      constexpr auto kValue = kFunctions[row].value;
      for (std::int64_t i = 0; i < n; ++i) {
        y[i] = kValue(x[i], a, b);
      }
    });
  }

  template <std::size_t row>
  static std::unique_ptr<Kernel> backward(const Signature& s) {
    return make_kernel([n = s.inputs[0].elements(), a = value_of(kFunctions[row].a, s.attributes),
                        b = value_of(kFunctions[row].b, s.attributes)](const Operands& t) {
      const float* x = t.input_f32(0);
      const float* dy = t.input_f32(1);
      float* dx = t.output_f32(0);
      constexpr auto kSlope = kFunctions[row].slope;
      for (std::int64_t i = 0; i < n; ++i) {
        dx[i] = dy[i] * kSlope(x[i], a, b);
      }
    });
  }
};

}  // namespace

std::vector<Operator> operators() {
  return function_table::operators<kFunctions, Numerics>();
}

}  // namespace poprun::ops::functions
