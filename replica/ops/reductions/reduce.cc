#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "replica/ops/broadcast/broadcast.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/face/shaped.h"

/// Reductions over axes.
///
///   reduce_max(x), reduce_min(x), reduce_prod(x)  axes=[..]  ->  y, of x's rank and layout, with size 1 along the axes
///   arg_max(x), arg_min(x)  axis=. last=0|1  ->  i32, of x's layout, with size 1 along the axis: the position of the
///                           maximum or minimum along it; of equal elements, the first or, with last=1, the last
///
/// A NaN makes the result NaN, and arg_max and arg_min return its position. For sums over axes, see `sum_to`. The
/// gradient of a maximum or minimum goes to the first element that equals it, in memory order. The derivative of a
/// product is the product of all other elements, including zeros.
namespace poprun::ops::reduce {
namespace {

Result<std::vector<TensorType>> shape_of(std::string_view kind, const Signature& s) {
  const auto bad = [&] { return shape_error(kind, s, "one non-empty f32 tensor, and axes=[..] within its rank"); };
  if (s.inputs.size() != 1 || s.inputs[0].data != DataType::kF32 || s.inputs[0].elements() == 0 ||
      !s.attributes.has("axes")) {
    return bad();
  }
  TensorType y = s.inputs[0];
  for (const std::int64_t axis : s.attributes.integers("axes")) {
    if (axis < 0 || axis >= static_cast<std::int64_t>(y.shape.size())) {
      return bad();
    }
    y.shape[static_cast<std::size_t>(axis)] = 1;
  }
  return std::vector{y};
}

struct Maximum {
  static constexpr float kStart = -std::numeric_limits<float>::infinity();
  static float of(float y, float x) { return x > y || x != x ? x : y; }
};
struct Minimum {
  static constexpr float kStart = std::numeric_limits<float>::infinity();
  static float of(float y, float x) { return x < y || x != x ? x : y; }
};
struct Multiply {
  static constexpr float kStart = 1;
  static float of(float y, float x) { return y * x; }
};

template <typename Combine>
void combine_row(const float* x, float* y, std::int64_t n, std::int64_t stride) {
  if (stride == 0) {
    float result = *y;
    for (std::int64_t i = 0; i < n; ++i) {
      result = Combine::of(result, x[i]);
    }
    *y = result;
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      y[i * stride] = Combine::of(y[i * stride], x[i]);
    }
  }
}

template <typename Combine>
std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel(
      [loops = broadcast_loops(s.inputs[0], {s.outputs[0]}), n = s.outputs[0].elements()](const Operands& t) {
        float* y = t.output_f32(0);
        std::fill_n(y, n, Combine::kStart);
        loops.for_each_row([&](std::int64_t at, const Shape& offsets) {
          combine_row<Combine>(t.input_f32(0) + at, y + offsets[0], loops.row(), loops.row_stride(0));
        });
      });
}

Work work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = s.inputs[0].elements();
  work.exchanged = s.outputs[0].bytes();
  return work;
}

/// reduce_extreme_gradient(x, y, dy)  ->  dx;  reduce_prod_gradient(x, dy)  ->  dx
Result<std::vector<TensorType>> gradient_shape(std::string_view kind, const Signature& s, std::size_t inputs) {
  if (s.inputs.size() != inputs || s.inputs[1] != s.inputs.back() ||
      broadcast_shape(s.inputs[0].shape, s.inputs[1].shape) != s.inputs[0].shape) {
    return shape_error(kind, s, "x, and y or dy of the shape to which x is reduced");
  }
  return std::vector{s.inputs[0]};
}

/// Calls visit(element of x, the element of y that it contributes to) in x's order.
template <typename Visit>
void for_each_element(const BroadcastLoops& loops, Visit visit) {
  loops.for_each_row([&](std::int64_t at, const Shape& offsets) {
    for (std::int64_t i = 0; i < loops.row(); ++i) {
      visit(at + i, offsets[0] + i * loops.row_stride(0));
    }
  });
}

std::unique_ptr<Kernel> extreme_gradient_numerics(const Signature& s) {
  return make_kernel(
      [loops = broadcast_loops(s.inputs[0], {s.inputs[1]}),
       open = std::vector<std::uint8_t>(static_cast<std::size_t>(s.inputs[1].elements()))](const Operands& t) mutable {
        const float* x = t.input_f32(0);
        std::ranges::fill(open, std::uint8_t{1});
        for_each_element(loops, [&](std::int64_t i, std::int64_t o) {
          std::uint8_t& here = open[static_cast<std::size_t>(o)];
          const bool takes = here != 0 && x[i] == t.input_f32(1)[o];
          t.output_f32(0)[i] = takes ? t.input_f32(2)[o] : 0.0F;
          here = takes ? std::uint8_t{0} : here;
        });
      });
}

/// Summarises the factors of one element of y.
struct Factors {
  double product = 1;  ///< Product of the factors that are not zero.
  std::int64_t zeros = 0;

  /// Returns the product of all factors except x.
  [[nodiscard]] double without(double x) const {
    if (x == 0) {
      return zeros == 1 ? product : 0;
    }
    return zeros == 0 ? product / x : 0;
  }
};

std::unique_ptr<Kernel> product_gradient_numerics(const Signature& s) {
  return make_kernel(
      [loops = broadcast_loops(s.inputs[0], {s.inputs[1]}),
       all = std::vector<Factors>(static_cast<std::size_t>(s.inputs[1].elements()))](const Operands& t) mutable {
        const float* x = t.input_f32(0);
        std::ranges::fill(all, Factors{});
        for_each_element(loops, [&](std::int64_t i, std::int64_t o) {
          Factors& f = all[static_cast<std::size_t>(o)];
          f.zeros += x[i] == 0.0F ? 1 : 0;
          f.product *= x[i] == 0.0F ? 1.0 : static_cast<double>(x[i]);
        });
        for_each_element(loops, [&](std::int64_t i, std::int64_t o) {
          const double others = all[static_cast<std::size_t>(o)].without(static_cast<double>(x[i]));
          t.output_f32(0)[i] = static_cast<float>(static_cast<double>(t.input_f32(1)[o]) * others);
        });
      });
}

Work gradient_work(const Signature& s) {
  Work work = elementwise_work(s, 2);
  work.exchanged = s.inputs.back().bytes();
  work.compute_sets = 2;
  return work;
}

void extreme_gradient(Differentiator& d) {
  const Operation& op = d.operation();
  d.set_input_gradient(
      0, d.add("reduce_extreme_gradient", {op.inputs[0], op.outputs[0], d.output_gradient(0)}, {}, {0})[0]);
}

void product_gradient(Differentiator& d) {
  d.set_input_gradient(0, d.add("reduce_prod_gradient", {d.operation().inputs[0], d.output_gradient(0)}, {}, {0})[0]);
}

Result<std::vector<TensorType>> arg_shape(std::string_view kind, const Signature& s) {
  if (s.inputs.size() != 1 || s.inputs[0].data != DataType::kF32 || s.inputs[0].elements() == 0 ||
      !has_axis(s.inputs[0], s.attributes) || !s.attributes.has("last")) {
    return shape_error(kind, s, "one non-empty f32 tensor, axis within its rank and last=0|1");
  }
  TensorType y = resized(s.inputs[0], s.attributes.integer("axis"), 1);
  y.data = DataType::kI32;
  return std::vector{y};
}

/// Returns the position of the largest of A elements that are `step` apart, after multiplying each by `sign`.
std::int32_t find_largest(const float* x, std::int64_t A, std::int64_t step, float sign, bool last) {
  std::int64_t best = 0;
  for (std::int64_t a = 1; a < A; ++a) {
    const float value = sign * x[a * step];
    const float largest = sign * x[best * step];
    const bool first_nan = std::isnan(value) && !std::isnan(largest);
    if (value > largest || first_nan || (last && value == largest)) {
      best = a;
    }
  }
  return static_cast<std::int32_t>(best);
}

std::unique_ptr<Kernel> arg_numerics(const Signature& s, float sign) {
  return make_kernel([view = view_along(s.inputs[0], s.attributes.integer("axis")), n = s.outputs[0].elements(), sign,
                      last = s.attributes.integer("last") != 0](const Operands& t) {
    const auto [O, A, R] = view;
    auto* y = reinterpret_cast<std::int32_t*>(t.outputs[0]);  // NOLINT: i32 tensor.
    for (std::int64_t i = 0; i < n; ++i) {
      y[i] = find_largest(t.input_f32(0) + i / R * A * R + i % R, A, R, sign, last);
    }
  });
}

}  // namespace

std::vector<Operator> operators() {
  return {
      {"reduce_max", [](const Signature& s) { return shape_of("reduce_max", s); }, extreme_gradient, work,
       numerics<Maximum>},
      {"reduce_min", [](const Signature& s) { return shape_of("reduce_min", s); }, extreme_gradient, work,
       numerics<Minimum>},
      {"reduce_prod", [](const Signature& s) { return shape_of("reduce_prod", s); }, product_gradient, work,
       numerics<Multiply>},
      {"reduce_extreme_gradient", [](const Signature& s) { return gradient_shape("reduce_extreme_gradient", s, 3); },
       nullptr, gradient_work, extreme_gradient_numerics},
      {"reduce_prod_gradient", [](const Signature& s) { return gradient_shape("reduce_prod_gradient", s, 2); }, nullptr,
       gradient_work, product_gradient_numerics},
      {"arg_max", [](const Signature& s) { return arg_shape("arg_max", s); }, flat, work,
       [](const Signature& s) { return arg_numerics(s, 1.0F); }},
      {"arg_min", [](const Signature& s) { return arg_shape("arg_min", s); }, flat, work,
       [](const Signature& s) { return arg_numerics(s, -1.0F); }},
  };
}

}  // namespace poprun::ops::reduce
