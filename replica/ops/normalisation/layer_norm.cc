#include "replica/ops/dnnl/kernel.h"
#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"

/// Layer normalisation (Ba, Kiros and Hinton, 2016) over the last dimension.
///
///   B  rows: all dimensions but the last, flattened    C  features
///
///   layer_norm(x [...,C], w [C], b [C]) epsilon=.  ->  y, mean [B], variance [B]
///
///   y = (x - mean) / sqrt(variance + epsilon) * w + b, with the row's mean and biased variance; the gradient uses both
namespace poprun::ops::layer_norm {
namespace {

bool fits(const Signature& s, std::size_t count) {
  if (s.inputs.size() != count || !s.attributes.has("epsilon") || !(s.attributes.real("epsilon") > 0)) {
    return false;
  }
  const TensorType& x = s.inputs[0];
  return x.data == DataType::kF32 && !x.shape.empty() && x.layout == Layout::kRowMajor && x.shape.back() > 0 &&
         s.inputs[1] == TensorType{DataType::kF32, {x.shape.back()}, {}};
}

TensorType per_row(const TensorType& x) {
  return {DataType::kF32, {x.elements() / x.shape.back()}, {}};
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (!fits(s, 3) || s.inputs[2] != s.inputs[1]) {
    return shape_error(kinds::kLayerNorm, s, "x f32[...,C], w f32[C], b f32[C] and epsilon > 0");
  }
  return std::vector{s.inputs[0], per_row(s.inputs[0]), per_row(s.inputs[0])};
}

dnnl::memory::desc rows_of(const TensorType& x) {
  return {{per_row(x).shape[0], x.shape.back()}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ab};
}

dnnl::normalization_flags flags() {
  return dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
}

dnnl::layer_normalization_forward::primitive_desc plan_forward(const TensorType& x, double epsilon) {
  return {{dnnl::prop_kind::forward_training, rows_of(x), dnnl_desc(per_row(x)), static_cast<float>(epsilon), flags()},
          dnnl_attributes(),
          dnnl_cpu()};
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const auto plan = plan_forward(s.inputs[0], s.attributes.real("epsilon"));
  const auto rows = rows_of(s.inputs[0]);
  const auto row = dnnl_desc(s.outputs[1]);
  const auto w = dnnl_desc(s.inputs[1]);
  return std::make_unique<DnnlKernel>(dnnl::layer_normalization_forward(plan), plan.scratchpad_desc(),
                                      std::vector<DnnlKernel::Argument>{{DNNL_ARG_SRC, false, 0, rows, rows},
                                                                        {DNNL_ARG_SCALE, false, 1, w, w},
                                                                        {DNNL_ARG_SHIFT, false, 2, w, w},
                                                                        {DNNL_ARG_DST, true, 0, rows, rows},
                                                                        {DNNL_ARG_MEAN, true, 1, row, row},
                                                                        {DNNL_ARG_VARIANCE, true, 2, row, row}});
}

Work work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = 7 * s.inputs[0].elements();
  work.compute_sets = 3;  // They compute means, variances and results.
  return work;
}

/// layer_norm_gradient(x, w, mean, variance, dy) epsilon=.  ->  dx, dw, db
Result<std::vector<TensorType>> gradient_shape(const Signature& s) {
  if (!fits(s, 5) || s.inputs[2] != per_row(s.inputs[0]) || s.inputs[3] != s.inputs[2] || s.inputs[4] != s.inputs[0]) {
    return shape_error("layer_norm_gradient", s, "x, w, mean, variance, dy and epsilon > 0");
  }
  return std::vector{s.inputs[0], s.inputs[1], s.inputs[1]};
}

std::unique_ptr<Kernel> gradient_numerics(const Signature& s) {
  const auto rows = rows_of(s.inputs[0]);
  const auto row = dnnl_desc(s.inputs[2]);
  const auto w = dnnl_desc(s.inputs[1]);
  const double epsilon = s.attributes.real("epsilon");
  const dnnl::layer_normalization_backward::primitive_desc plan(
      {dnnl::prop_kind::backward, rows, rows, row, static_cast<float>(epsilon), flags()}, dnnl_attributes(), dnnl_cpu(),
      plan_forward(s.inputs[0], epsilon));
  return std::make_unique<DnnlKernel>(
      dnnl::layer_normalization_backward(plan), plan.scratchpad_desc(),
      std::vector<DnnlKernel::Argument>{{DNNL_ARG_SRC, false, 0, rows, rows},
                                        {DNNL_ARG_SCALE, false, 1, w, w},
                                        // oneDNN requires a bias here but does not read it, so w is passed instead.
                                        {DNNL_ARG_SHIFT, false, 1, w, w},
                                        {DNNL_ARG_MEAN, false, 2, row, row},
                                        {DNNL_ARG_VARIANCE, false, 3, row, row},
                                        {DNNL_ARG_DIFF_DST, false, 4, rows, rows},
                                        {DNNL_ARG_DIFF_SRC, true, 0, rows, rows},
                                        {DNNL_ARG_DIFF_SCALE, true, 1, w, w},
                                        {DNNL_ARG_DIFF_SHIFT, true, 2, w, w}});
}

Work gradient_work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.vector_flops = 14 * s.inputs[0].elements();
  work.compute_sets = 3;
  return work;
}

void gradient(Differentiator& d) {
  const Operation& op = d.operation();
  const auto gradients =
      d.add("layer_norm_gradient", {op.inputs[0], op.inputs[1], op.outputs[1], op.outputs[2], d.output_gradient(0)},
            op.attributes, {0, 1, 2});
  for (std::size_t input = 0; input < gradients.size(); ++input) {
    d.set_input_gradient(input, gradients[input]);
  }
}

}  // namespace

std::vector<Operator> operators() {
  return {{kinds::kLayerNorm, shape, gradient, work, numerics, nullptr, nullptr, nullptr, 1},
          {"layer_norm_gradient", gradient_shape, nullptr, gradient_work, gradient_numerics}};
}

}  // namespace poprun::ops::layer_norm
