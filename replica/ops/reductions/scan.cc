#include <cstdint>

#include "replica/ops/face/operator.h"
#include "replica/ops/face/shaped.h"

/// Running sums of f32 tensors in any layout, and triangles of row-major f32 tensors.
///
///   cum_sum(x [O,A,R]) axis=. exclusive=0|1 reverse=0|1  ->  y, y[a] = x[0] + ... + x[a] in double, rounded once
///   trilu(x [...,M,N]) upper=0|1 k=.  ->  y, x on one side of diagonal k and 0 on the other
///
/// With exclusive=1, y[a] excludes x[a]. With reverse=1, sums start at the end. On diagonal k, column = row + k. The
/// diagonal belongs to both triangles.
namespace poprun::ops::scan {
namespace {

bool has_flag(const Attributes& attributes, const std::string& name) {
  return attributes.has(name) && attributes.integer(name) >= 0 && attributes.integer(name) <= 1;
}

Result<std::vector<TensorType>> cum_sum_shape(const Signature& s) {
  if (s.inputs.size() != 1 || s.inputs[0].data != DataType::kF32 || !has_axis(s.inputs[0], s.attributes) ||
      !has_flag(s.attributes, "exclusive") || !has_flag(s.attributes, "reverse")) {
    return shape_error("cum_sum", s, "one f32 tensor, axis within its rank, exclusive=0|1 and reverse=0|1");
  }
  return std::vector{s.inputs[0]};
}

std::unique_ptr<Kernel> cum_sum_numerics(const Signature& s) {
  const AxisView view = view_along(s.inputs[0], s.attributes.integer("axis"));
  const bool reverse = s.attributes.integer("reverse") != 0;
  const std::int64_t step = reverse ? -view.R : view.R;
  return make_kernel([view, step, first = reverse ? (view.A - 1) * view.R : 0,
                      exclusive = s.attributes.integer("exclusive") != 0](const Operands& t) {
    for (std::int64_t row = 0; row < view.O * view.R; ++row) {
      std::int64_t at = row / view.R * view.A * view.R + row % view.R + first;
      double sum = 0;
      for (std::int64_t a = 0; a < view.A; ++a, at += step) {
        const double before = sum;
        sum += static_cast<double>(t.input_f32(0)[at]);
        t.output_f32(0)[at] = static_cast<float>(exclusive ? before : sum);
      }
    }
  });
}

Work one_flop(const Signature& s) {
  return elementwise_work(s, 1);
}

/// Sets the gradient to the running sum of dy in the opposite direction, because x[a] contributes to all later sums.
void cum_sum_gradient(Differentiator& d) {
  Attributes attributes = d.operation().attributes;
  attributes.set("reverse", 1 - attributes.integer("reverse"));
  d.set_input_gradient(0, d.add("cum_sum", {d.output_gradient(0)}, attributes, {0})[0]);
}

Result<std::vector<TensorType>> trilu_shape(const Signature& s) {
  if (s.inputs.size() != 1 || s.inputs[0].data != DataType::kF32 || s.inputs[0].layout != Layout::kRowMajor ||
      s.inputs[0].shape.size() < 2 || !has_flag(s.attributes, "upper") || !s.attributes.has("k")) {
    return shape_error("trilu", s, "x f32[...,M,N] row-major, upper=0|1 and k");
  }
  return std::vector{s.inputs[0]};
}

std::unique_ptr<Kernel> trilu_numerics(const Signature& s) {
  const Shape& d = s.inputs[0].shape;
  return make_kernel([n = s.inputs[0].elements(), M = d[d.size() - 2], N = d.back(),
                      upper = s.attributes.integer("upper") != 0, k = s.attributes.integer("k")](const Operands& t) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t column = i % N;
      const std::int64_t diagonal = i / N % M + k;
      const bool stays = upper ? column >= diagonal : column <= diagonal;
      t.output_f32(0)[i] = stays ? t.input_f32(0)[i] : 0.0F;
    }
  });
}

void trilu_gradient(Differentiator& d) {
  d.set_input_gradient(0, d.add("trilu", {d.output_gradient(0)}, d.operation().attributes, {0})[0]);
}

}  // namespace

std::vector<Operator> operators() {
  return {{"cum_sum", cum_sum_shape, cum_sum_gradient, one_flop, cum_sum_numerics},
          {"trilu", trilu_shape, trilu_gradient, one_flop, trilu_numerics}};
}

}  // namespace poprun::ops::scan
