#include "replica/ops/dnnl/kernel.h"
#include "replica/ops/operator.h"

/// Two-dimensional convolution.
///
///   N  images in the micro-batch    C  input channels    O  output channels
///   H, W  input image               Y, X  output image   R, S  kernel
///
///   conv2d(x [N,C,H,W]{nhwc}, w [O,C,R,S], b [O]) stride=[.,.] pad=[.,.]  ->  y [N,O,Y,X]{nhwc}
///
/// `pad` is on both sides. Weights lie as frameworks keep them; oneDNN's blocked form of them is
/// made anew in every step, since they change in every step.
namespace poprun {
namespace {

using dnnl::memory;

struct Geometry {
  memory::dims stride;
  memory::dims pad;

  explicit Geometry(const Attributes& attributes)
      : stride(attributes.integers("stride")), pad(attributes.integers("pad")) {}
};

bool is_image(const TensorType& type) {
  return type.data == DataType::kF32 && type.shape.size() == 4 &&
         type.layout == Layout::kChannelsLast;
}

bool fits(const Signature& s) {
  if (s.inputs.size() != 3 || !s.attributes.has("stride") || !s.attributes.has("pad")) {
    return false;
  }
  const TensorType& x = s.inputs[0];
  const TensorType& w = s.inputs[1];
  const TensorType& b = s.inputs[2];
  return is_image(x) && w.data == DataType::kF32 && w.shape.size() == 4 &&
         w.layout == Layout::kRowMajor && w.shape[1] == x.shape[1] && b.shape == Shape{w.shape[0]};
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  const auto bad = [&] {
    return shape_error("conv2d", s,
                       "x f32[N,C,H,W]{nhwc}, w f32[O,C,R,S], b f32[O], stride=[.,.] >= 1, "
                       "pad=[.,.] >= 0, and a kernel no larger than the padded image");
  };
  if (!fits(s)) {
    return bad();
  }
  const auto& stride = s.attributes.integers("stride");
  const auto& pad = s.attributes.integers("pad");
  if (stride.size() != 2 || pad.size() != 2) {
    return bad();
  }
  Shape y = {s.inputs[0].shape[0], s.inputs[1].shape[0]};
  for (std::size_t d = 0; d < 2; ++d) {
    const std::int64_t room = s.inputs[0].shape[d + 2] + 2 * pad[d] - s.inputs[1].shape[d + 2];
    if (stride[d] < 1 || pad[d] < 0 || room < 0) {
      return bad();
    }
    y.push_back(room / stride[d] + 1);
  }
  return std::vector{TensorType{DataType::kF32, y, Layout::kChannelsLast}};
}

/// Forward as oneDNN plans it; the two backward passes take it as a hint.
dnnl::convolution_forward::primitive_desc plan_forward(const TensorType& x, const TensorType& w,
                                                       const TensorType& y, const Geometry& g) {
  const memory::desc bias({w.shape[0]}, memory::data_type::f32, memory::format_tag::x);
  return {{dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, dnnl_desc(x),
           dnnl_desc_any(w), bias, dnnl_desc(y), g.stride, g.pad, g.pad},
          dnnl_attributes(),
          dnnl_cpu()};
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const TensorType& x = s.inputs[0];
  const TensorType& w = s.inputs[1];
  const TensorType& y = s.outputs[0];
  const auto plan = plan_forward(x, w, y, Geometry(s.attributes));
  return std::make_unique<DnnlKernel>(
      dnnl::convolution_forward(plan), plan.scratchpad_desc(),
      std::vector<DnnlKernel::Argument>{
          {DNNL_ARG_SRC, false, 0, dnnl_desc(x), plan.src_desc()},
          {DNNL_ARG_WEIGHTS, false, 1, dnnl_desc(w), plan.weights_desc()},
          {DNNL_ARG_BIAS, false, 2, dnnl_desc(s.inputs[2]), plan.bias_desc()},
          {DNNL_ARG_DST, true, 0, dnnl_desc(y), plan.dst_desc()}});
}

/// Every pass multiplies each output pixel with each weight of its filter once.
std::int64_t macs(const TensorType& y, const TensorType& w) {
  return y.elements() * w.elements() / w.shape[0];
}

Work work_of(std::int64_t macs_count, const Signature& s, const TensorType& y) {
  Work work = elementwise_work(s, 0);
  work.macs = macs_count;
  work.vector_flops = y.elements();  // The bias.
  for (const TensorType& input : s.inputs) {
    work.exchanged += input.bytes();
  }
  return work;
}

Work work(const Signature& s) {
  return work_of(macs(s.outputs[0], s.inputs[1]), s, s.outputs[0]);
}

/// conv2d_input_gradient(dy, w) input_shape=[..]  ->  dx
Result<std::vector<TensorType>> input_gradient_shape(const Signature& s) {
  if (s.inputs.size() != 2 || !is_image(s.inputs[0]) || !s.attributes.has("input_shape")) {
    return shape_error("conv2d_input_gradient", s, "dy, w and input_shape=[N,C,H,W]");
  }
  return std::vector{
      TensorType{DataType::kF32, s.attributes.integers("input_shape"), Layout::kChannelsLast}};
}

std::unique_ptr<Kernel> input_gradient_numerics(const Signature& s) {
  const TensorType& dy = s.inputs[0];
  const TensorType& w = s.inputs[1];
  const TensorType& dx = s.outputs[0];
  const Geometry g(s.attributes);
  const dnnl::convolution_backward_data::primitive_desc plan(
      {dnnl::algorithm::convolution_direct, dnnl_desc(dx), dnnl_desc_any(w), dnnl_desc(dy),
       g.stride, g.pad, g.pad},
      dnnl_attributes(), dnnl_cpu(), plan_forward(dx, w, dy, g));
  return std::make_unique<DnnlKernel>(
      dnnl::convolution_backward_data(plan), plan.scratchpad_desc(),
      std::vector<DnnlKernel::Argument>{
          {DNNL_ARG_DIFF_DST, false, 0, dnnl_desc(dy), plan.diff_dst_desc()},
          {DNNL_ARG_WEIGHTS, false, 1, dnnl_desc(w), plan.weights_desc()},
          {DNNL_ARG_DIFF_SRC, true, 0, dnnl_desc(dx), plan.diff_src_desc()}});
}

Work input_gradient_work(const Signature& s) {
  return work_of(macs(s.inputs[0], s.inputs[1]), s, s.outputs[0]);
}

/// conv2d_weight_gradient(x, dy) kernel=[R,S]  ->  dw, db
Result<std::vector<TensorType>> weight_gradient_shape(const Signature& s) {
  if (s.inputs.size() != 2 || !is_image(s.inputs[0]) || !is_image(s.inputs[1]) ||
      !s.attributes.has("kernel")) {
    return shape_error("conv2d_weight_gradient", s, "x, dy and kernel=[R,S]");
  }
  const auto& kernel = s.attributes.integers("kernel");
  const std::int64_t O = s.inputs[1].shape[1];
  return std::vector{
      TensorType{DataType::kF32, {O, s.inputs[0].shape[1], kernel[0], kernel[1]}, {}},
      TensorType{DataType::kF32, {O}, {}}};
}

std::unique_ptr<Kernel> weight_gradient_numerics(const Signature& s) {
  const TensorType& x = s.inputs[0];
  const TensorType& dy = s.inputs[1];
  const TensorType& dw = s.outputs[0];
  const TensorType& db = s.outputs[1];
  const Geometry g(s.attributes);
  const dnnl::convolution_backward_weights::primitive_desc plan(
      {dnnl::algorithm::convolution_direct, dnnl_desc(x), dnnl_desc_any(dw), dnnl_desc(db),
       dnnl_desc(dy), g.stride, g.pad, g.pad},
      dnnl_attributes(), dnnl_cpu(), plan_forward(x, dw, dy, g));
  return std::make_unique<DnnlKernel>(
      dnnl::convolution_backward_weights(plan), plan.scratchpad_desc(),
      std::vector<DnnlKernel::Argument>{
          {DNNL_ARG_SRC, false, 0, dnnl_desc(x), plan.src_desc()},
          {DNNL_ARG_DIFF_DST, false, 1, dnnl_desc(dy), plan.diff_dst_desc()},
          {DNNL_ARG_DIFF_WEIGHTS, true, 0, dnnl_desc(dw), plan.diff_weights_desc()},
          {DNNL_ARG_DIFF_BIAS, true, 1, dnnl_desc(db), plan.diff_bias_desc()}});
}

Work weight_gradient_work(const Signature& s) {
  return work_of(macs(s.inputs[1], s.outputs[0]), s, s.inputs[1]);
}

void gradient(Differentiator& d) {
  const Operation& op = d.operation();
  const TensorId x = op.inputs[0];
  const TensorId w = op.inputs[1];
  const TensorId dy = d.output_gradient(0);
  const Shape& kernel = d.type(w).shape;

  Attributes weight_attributes = op.attributes;
  weight_attributes.set("kernel", std::vector<std::int64_t>{kernel[2], kernel[3]});
  const auto dw = d.add("conv2d_weight_gradient", {x, dy}, weight_attributes, {1, 2});
  d.set_input_gradient(1, dw[0]);
  d.set_input_gradient(2, dw[1]);
  if (d.wants(0)) {
    Attributes input_attributes = op.attributes;
    input_attributes.set("input_shape", d.type(x).shape);
    d.set_input_gradient(0, d.add("conv2d_input_gradient", {dy, w}, input_attributes, {0})[0]);
  }
}

}  // namespace

std::vector<Operator> conv2d_operators() {
  return {
      {"conv2d", shape, gradient, work, numerics},
      {"conv2d_input_gradient", input_gradient_shape, nullptr, input_gradient_work,
       input_gradient_numerics},
      {"conv2d_weight_gradient", weight_gradient_shape, nullptr, weight_gradient_work,
       weight_gradient_numerics},
  };
}

}  // namespace poprun
