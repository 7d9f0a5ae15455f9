#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "replica/ops/face/operator.h"
#include "replica/ops/face/shaped.h"
#include "replica/ops/face/simd.h"

/// Interpolation along one axis. Images are resized one axis at a time.
///
///   A  size of the axis    O  dimensions before it    R  dimensions after it, in memory order
///
///   resize(x [O,A,R]) axis=. size=. scale=. mode=. coordinates=.  ->  y [O,size,R], of x's layout
///
/// y[i] is read from position p of x, chosen by `coordinates`:
///
///   "half_pixel"            (i + 0.5) / scale - 0.5
///   "pytorch_half_pixel"    as with "half_pixel", but 0 if size = 1
///   "tf_half_pixel_for_nn"  (i + 0.5) / scale
///   "asymmetric"            i / scale
///   "align_corners"         i (A - 1) / (scale A - 1), but 0 if size = 1
///
/// Positions outside x stand for its first or last element. `mode` selects how y[i] is computed:
///
///   "nearest"  the element that p rounds to; rounding="round_prefer_floor" (default: halves round down),
///              "round_prefer_ceil", "floor", "ceil"
///   "linear"   interpolation between the two elements around p
///   "cubic"    Keys' kernel over four elements, cubic_a=. (default -0.75); with exclude_outside=1
///              elements outside x have no weight and the other weights are scaled up
///
/// scale defaults to size / A; scale * A can be fractional. The operator follows ONNX's Resize
/// (github.com/onnx/onnx/blob/main/docs/Operators.md#Resize) and its published test cases.
namespace poprun::ops::resize {
namespace {

/// One element of x that contributes to an element of y, and its weight.
struct Tap {
  std::int64_t source;
  float weight;
};

double place_of(std::int64_t i, std::int64_t A, std::int64_t size, const Attributes& attributes) {
  const std::string& coordinates = attributes.text("coordinates");
  const auto at = static_cast<double>(i);
  const double scale =
      attributes.has("scale") ? attributes.real("scale") : static_cast<double>(size) / static_cast<double>(A);
  if (coordinates == "align_corners") {
    // By default, this is not scale * A, because size / A * A can differ from size in the last place.
    const double length =
        attributes.has("scale") ? attributes.real("scale") * static_cast<double>(A) : static_cast<double>(size);
    return size == 1 || length == 1 ? 0 : at * static_cast<double>(A - 1) / (length - 1);
  }
  if (coordinates == "asymmetric") {
    return at / scale;
  }
  if (coordinates == "tf_half_pixel_for_nn") {
    return (at + 0.5) / scale;
  }
  return coordinates == "pytorch_half_pixel" && size == 1 ? 0 : (at + 0.5) / scale - 0.5;
}

double round_place(double place, const Attributes& attributes) {
  const std::string rounding = attributes.has("rounding") ? attributes.text("rounding") : "round_prefer_floor";
  if (rounding == "floor") {
    return std::floor(place);
  }
  if (rounding == "ceil") {
    return std::ceil(place);
  }
  return rounding == "round_prefer_ceil" ? std::floor(place + 0.5) : std::ceil(place - 0.5);
}

/// Implements Keys, "Cubic convolution interpolation for digital image processing", 1981, equation 15.
std::array<double, 4> cubic_weights(double t, double a) {
  const auto near = [a](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  const auto far = [a](double d) { return ((d - 5) * d + 8) * d * a - 4 * a; };
  return {far(1 + t), near(t), near(1 - t), far(2 - t)};
}

/// Returns the taps around `place`, which may be outside x.
std::vector<Tap> taps_at(double place, const Attributes& attributes) {
  const std::string& mode = attributes.text("mode");
  if (mode == "nearest") {
    return {{static_cast<std::int64_t>(round_place(place, attributes)), 1.0F}};
  }
  const auto below = static_cast<std::int64_t>(std::floor(place));
  const double t = place - std::floor(place);
  if (mode == "linear") {
    return {{below, static_cast<float>(1 - t)}, {below + 1, static_cast<float>(t)}};
  }
  const double a = attributes.has("cubic_a") ? attributes.real("cubic_a") : -0.75;
  std::vector<Tap> taps;
  for (const double weight : cubic_weights(t, a)) {
    taps.push_back({below - 1 + static_cast<std::int64_t>(taps.size()), static_cast<float>(weight)});
  }
  return taps;
}

/// Returns the taps of each element of y. All elements have the same number of taps.
std::vector<std::vector<Tap>> plan(std::int64_t A, const Attributes& attributes) {
  const std::int64_t size = attributes.integer("size");
  const bool exclude = attributes.has("exclude_outside") && attributes.integer("exclude_outside") != 0;
  std::vector<std::vector<Tap>> all;
  for (std::int64_t i = 0; i < size; ++i) {
    std::vector<Tap> taps = taps_at(place_of(i, A, size, attributes), attributes);
    float inside = 0;
    for (Tap& tap : taps) {
      tap.weight = exclude && (tap.source < 0 || tap.source >= A) ? 0.0F : tap.weight;
      tap.source = std::clamp<std::int64_t>(tap.source, 0, A - 1);
      inside += tap.weight;
    }
    for (Tap& tap : taps) {
      tap.weight = exclude ? tap.weight / inside : tap.weight;
    }
    all.push_back(std::move(taps));
  }
  return all;
}

bool is_one_of(const Attributes& attributes, const std::string& name, std::initializer_list<std::string_view> texts) {
  return attributes.has(name) && std::ranges::find(texts, attributes.text(name)) != texts.end();
}

bool fits(const TensorType& x, const Attributes& attributes) {
  return x.data == DataType::kF32 && x.elements() > 0 && has_axis(x, attributes) && attributes.has("size") &&
         attributes.integer("size") >= 1 && (!attributes.has("scale") || attributes.real("scale") > 0) &&
         is_one_of(attributes, "mode", {"nearest", "linear", "cubic"}) &&
         is_one_of(attributes, "coordinates",
                   {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn"}) &&
         (!attributes.has("rounding") ||
          is_one_of(attributes, "rounding", {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}));
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (s.inputs.size() != 1 || !fits(s.inputs[0], s.attributes)) {
    return shape_error("resize", s,
                       "x f32 and not empty, axis within its rank, size >= 1, scale > 0 if given, "
                       "and known values of mode, coordinates and, if given, rounding");
  }
  return std::vector{resized(s.inputs[0], s.attributes.integer("axis"), s.attributes.integer("size"))};
}

/// Computes to[i] += weight * from[i].
POPRUN_SIMD void add_scaled(const float* __restrict from, float weight, float* __restrict to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] += weight * from[i];
  }
}

/// Calls visit(offset in x, offset in y, weight) for every tap of every row, in y's order.
template <typename Visit>
void for_each_tap(const AxisView& x, const std::vector<std::vector<Tap>>& all, Visit visit) {
  std::int64_t to = 0;
  for (std::int64_t o = 0; o < x.O; ++o) {
    for (const std::vector<Tap>& taps : all) {
      for (const Tap& tap : taps) {
        visit((o * x.A + tap.source) * x.R, to, tap.weight);
      }
      to += x.R;
    }
  }
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const AxisView x = view_along(s.inputs[0], s.attributes.integer("axis"));
  return make_kernel([x, all = plan(x.A, s.attributes), n = s.outputs[0].elements()](const Operands& t) {
    std::fill_n(t.output_f32(0), n, 0.0F);
    for_each_tap(x, all, [&](std::int64_t from, std::int64_t to, float weight) {
      add_scaled(t.input_f32(0) + from, weight, t.output_f32(0) + to, x.R);
    });
  });
}

Work work(const Signature& s) {
  const std::string& mode = s.attributes.text("mode");
  Work work = elementwise_work(s, mode == "nearest" ? 0 : mode == "linear" ? 3 : 7);
  work.exchanged = s.outputs[0].bytes();
  return work;
}

/// resize_gradient(dy) input_size=A and resize's attributes  ->  dx
Result<std::vector<TensorType>> gradient_shape(const Signature& s) {
  if (s.inputs.size() == 1 && has_axis(s.inputs[0], s.attributes) && s.attributes.has("input_size") &&
      s.attributes.integer("input_size") >= 1) {
    const std::int64_t axis = s.attributes.integer("axis");
    const TensorType x = resized(s.inputs[0], axis, s.attributes.integer("input_size"));
    if (fits(x, s.attributes) && size_along(s.inputs[0], axis) == s.attributes.integer("size")) {
      return std::vector{x};
    }
  }
  return shape_error("resize_gradient", s, "dy of resize's output shape, input_size and resize's attributes");
}

std::unique_ptr<Kernel> gradient_numerics(const Signature& s) {
  const AxisView x = view_along(s.outputs[0], s.attributes.integer("axis"));
  return make_kernel([x, all = plan(x.A, s.attributes), n = s.outputs[0].elements()](const Operands& t) {
    std::fill_n(t.output_f32(0), n, 0.0F);
    for_each_tap(x, all, [&](std::int64_t to, std::int64_t from, float weight) {
      add_scaled(t.input_f32(0) + from, weight, t.output_f32(0) + to, x.R);
    });
  });
}

Work gradient_work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = 4 * s.inputs[0].elements();
  work.exchanged = s.inputs[0].bytes();
  return work;
}

void gradient(Differentiator& d) {
  const Operation& op = d.operation();
  Attributes attributes = op.attributes;
  attributes.set("input_size", size_along(d.type(op.inputs[0]), attributes.integer("axis")));
  d.set_input_gradient(0, d.add("resize_gradient", {d.output_gradient(0)}, attributes, {0})[0]);
}

}  // namespace

std::vector<Operator> operators() {
  return {{"resize", shape, gradient, work, numerics},
          {"resize_gradient", gradient_shape, nullptr, gradient_work, gradient_numerics}};
}

}  // namespace poprun::ops::resize
