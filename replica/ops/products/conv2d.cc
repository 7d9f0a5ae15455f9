#include <array>
#include <optional>

#include "replica/ops/dnnl/kernel.h"
#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/face/shaped.h"
#include "replica/ops/products/product_kernel.h"

/// Two-dimensional convolution.
///
///   N  images in the micro-batch    C  input channels    O  output channels    G  groups
///   H, W  input image               Y, X  output image   R, S  kernel
///
///   conv2d(x [N,C,H,W]{nhwc}, w [O,C/G,R,S], b [O]) stride=[.,.] pad=[top,left,bottom,right]
///          dilation=[.,.] groups=G  ->  y [N,O,Y,X]{nhwc};  b is optional
///
/// Output channels of group g read the input channels of group g. With G = C, the convolution is depthwise. Dilation d
/// puts the kernel's taps d pixels apart. To convolve sequences [N,C,L], use images [N,C,1,L] with R = 1. Weights are
/// stored as in frameworks and change in every step. Each step therefore reorders them into oneDNN's blocked form,
/// which, for small images and many weights, costs more than the convolution. A convolution with a 1x1 kernel, stride
/// 1, one group and no padding is instead computed as a matrix product (in the forward pass only if 16 divides O).
namespace poprun::ops::conv2d {
namespace {

using dnnl::memory;

struct Geometry {
  memory::dims stride;
  memory::dims pad_begin;
  memory::dims pad_end;
  memory::dims dilation;  ///< In oneDNN's convention: the number of pixels between two taps.
  std::int64_t groups;

  explicit Geometry(const Attributes& attributes)
      : stride(attributes.integers("stride")), groups(attributes.integer("groups")) {
    const auto& pad = attributes.integers("pad");
    pad_begin = {pad[0], pad[1]};
    pad_end = {pad[2], pad[3]};
    for (const std::int64_t d : attributes.integers("dilation")) {
      dilation.push_back(d - 1);
    }
  }
};

bool has_geometry(const Attributes& attributes) {
  return are_integers(attributes, "stride", 2, 1) && are_integers(attributes, "pad", 4, 0) &&
         are_integers(attributes, "dilation", 2, 1) && attributes.has("groups") && attributes.integer("groups") >= 1;
}

bool fits(const Signature& s) {
  if (s.inputs.size() < 2 || s.inputs.size() > 3 || !has_geometry(s.attributes)) {
    return false;
  }
  const TensorType& x = s.inputs[0];
  const TensorType& w = s.inputs[1];
  const std::int64_t groups = s.attributes.integer("groups");
  return is_image(x) && w.data == DataType::kF32 && w.shape.size() == 4 && w.layout == Layout::kRowMajor &&
         w.shape[0] % groups == 0 && w.shape[1] * groups == x.shape[1] &&
         (s.inputs.size() == 2 || s.inputs[2] == TensorType{DataType::kF32, {w.shape[0]}, {}});
}

/// Returns y's type, or nothing if the kernel is larger than the padded image.
std::optional<TensorType> convolved(const TensorType& x, const TensorType& w, const Attributes& attributes) {
  const auto& stride = attributes.integers("stride");
  const auto& pad = attributes.integers("pad");
  const auto& dilation = attributes.integers("dilation");
  TensorType y{DataType::kF32, {x.shape[0], w.shape[0]}, Layout::kChannelsLast};
  for (std::size_t d = 0; d < 2; ++d) {
    const std::int64_t reach = (w.shape[d + 2] - 1) * dilation[d] + 1;
    const std::int64_t room = x.shape[d + 2] + pad[d] + pad[d + 2] - reach;
    if (room < 0) {
      return std::nullopt;
    }
    y.shape.push_back(room / stride[d] + 1);
  }
  return y;
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  const auto bad = [&] {
    return shape_error(kinds::kConv2d, s,
                       "x f32[N,C,H,W]{nhwc}, w f32[O,C/groups,R,S], optionally b f32[O], "
                       "stride=[.,.] >= 1, pad=[top,left,bottom,right] >= 0, dilation=[.,.] >= 1, "
                       "groups that divide C and O, and a kernel no larger than the padded image");
  };
  const auto y = fits(s) ? convolved(s.inputs[0], s.inputs[1], s.attributes) : std::nullopt;
  return y ? Result<std::vector<TensorType>>(std::vector{*y}) : bad();
}

/// Returns the type of the weights for oneDNN: [O,C,R,S], or the same bytes as [G,O/G,C/G,R,S].
TensorType weights_of(const TensorType& w, std::int64_t groups) {
  if (groups == 1) {
    return w;
  }
  const Shape& d = w.shape;
  return {w.data, {groups, d[0] / groups, d[1], d[2], d[3]}, w.layout};
}

memory::desc bias_desc(const TensorType& y) {
  return {{y.shape[1]}, memory::data_type::f32, memory::format_tag::x};
}

/// Returns oneDNN's plan of the forward pass, which both backward passes use as a hint. `w` must come from weights_of.
dnnl::convolution_forward::primitive_desc plan_forward(const TensorType& x, const TensorType& w, const TensorType& y,
                                                       const Geometry& g, bool with_bias) {
  return {{dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, dnnl_desc(x), dnnl_desc_any(w),
           with_bias ? bias_desc(y) : memory::desc(), dnnl_desc(y), g.stride, g.dilation, g.pad_begin, g.pad_end},
          dnnl_attributes(),
          dnnl_cpu()};
}

/// Sizes of a convolution that is a product of matrices.
struct PixelProduct {
  std::int64_t pixels;
  std::int64_t in;
  std::int64_t out;

  [[nodiscard]] DnnlMatrix x() const { return DnnlMatrix::plain({pixels, in}); }
  [[nodiscard]] DnnlMatrix w() const { return DnnlMatrix::plain({out, in}); }
  [[nodiscard]] DnnlMatrix y() const { return DnnlMatrix::plain({pixels, out}); }
};

std::optional<PixelProduct> pixel_product_of(const TensorType& x, const TensorType& w, const Geometry& g) {
  const memory::dims none = {0, 0};
  const bool one = w.shape[2] == 1 && w.shape[3] == 1 && g.groups == 1;
  if (!one || g.stride != memory::dims{1, 1} || g.pad_begin != none || g.pad_end != none) {
    return std::nullopt;
  }
  return PixelProduct{.pixels = x.elements() / x.shape[1], .in = x.shape[1], .out = w.shape[0]};
}

/// Returns whether identical filters give identical channels. With AVX2, oneDNN's product sums the columns beyond the
/// last multiple of 16 in a different order, and a softmax of large numbers exposes the difference.
bool has_equal_columns(const PixelProduct& p) {
  return p.out % 16 == 0;
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const Geometry g(s.attributes);
  const TensorType& x = s.inputs[0];
  if (const auto p = pixel_product_of(x, s.inputs[1], g); p && has_equal_columns(*p)) {
    return matmul_kernel(p->x(), p->w().transposed(), p->y(), s.inputs.size() == 3);
  }
  const TensorType& y = s.outputs[0];
  const TensorType w = weights_of(s.inputs[1], g.groups);
  const bool with_bias = s.inputs.size() == 3;
  const auto plan = plan_forward(x, w, y, g, with_bias);
  std::vector<DnnlKernel::Argument> arguments = {{DNNL_ARG_SRC, false, 0, dnnl_desc(x), plan.src_desc()},
                                                 {DNNL_ARG_WEIGHTS, false, 1, dnnl_desc(w), plan.weights_desc()},
                                                 {DNNL_ARG_DST, true, 0, dnnl_desc(y), plan.dst_desc()}};
  if (with_bias) {
    arguments.push_back({DNNL_ARG_BIAS, false, 2, bias_desc(y), bias_desc(y)});
  }
  return std::make_unique<DnnlKernel>(dnnl::convolution_forward(plan), plan.scratchpad_desc(), arguments);
}

/// Counts the multiply-accumulates of any pass: one per output element and weight of that element's filter.
std::int64_t macs(const TensorType& y, const TensorType& w) {
  return y.elements() * (w.elements() / w.shape[0]);
}

Work work(const Signature& s) {
  return product_work(s, macs(s.outputs[0], s.inputs[1]), s.inputs.size() == 3 ? s.outputs[0].elements() : 0);
}

/// Returns the field dimensions of x * w -> y.
std::array<FieldDimension, 2> field_of(const TensorType& x, const TensorType& w, const TensorType& y,
                                       const Attributes& attributes) {
  std::array<FieldDimension, 2> field;
  for (std::size_t d = 0; d < 2; ++d) {
    field[d] = {.input = x.shape[d + 2],
                .kernel = w.shape[d + 2],
                .output = y.shape[d + 2],
                .stride = attributes.integers("stride")[d],
                .input_dilation = 1,
                .kernel_dilation = attributes.integers("dilation")[d],
                .padding = attributes.integers("pad")[d]};
  }
  return field;
}

/// Returns the product x * w -> y for the planner.
Product product_of(const Signature& s, const TensorType& x, const TensorType& w, const TensorType& y) {
  const std::int64_t groups = s.attributes.integer("groups");
  return {.kind = ProductKind::kConvolution,
          .pass = ProductPass::kForward,
          .arithmetic = arithmetic_of(s),
          .groups = groups,
          .batch = x.shape[0],
          .input_channels = w.shape[1],
          .output_channels = w.shape[0] / groups,
          .field = field_of(x, w, y, s.attributes)};
}

Product product(const Signature& s) {
  return product_of(s, s.inputs[0], s.inputs[1], s.outputs[0]);
}

constexpr ProductAxis kGroups = ProductAxis::kGroups;
constexpr ProductAxis kBatch = ProductAxis::kBatch;
constexpr ProductAxis kInputs = ProductAxis::kInputs;
constexpr ProductAxis kOutputs = ProductAxis::kOutputs;
constexpr ProductAxis kRows = ProductAxis::kRows;
constexpr ProductAxis kColumns = ProductAxis::kColumns;

OperandAxes operand_axes(const Signature& /*s*/) {
  return {.input = {kBatch, kRows, kColumns, kGroups, kInputs},
          .weights = {kGroups, kOutputs, kInputs, kRows, kColumns},
          .output = {kBatch, kRows, kColumns, kGroups, kOutputs}};
}

/// conv2d_input_gradient(dy, w) input_shape=[N,C,H,W] and conv2d's attributes  ->  dx
/// Models also use this operator as a transposed convolution, so it has a gradient.
Result<std::vector<TensorType>> input_gradient_shape(const Signature& s) {
  if (s.inputs.size() == 2 && are_integers(s.attributes, "input_shape", 4, 1)) {
    const TensorType x{DataType::kF32, s.attributes.integers("input_shape"), Layout::kChannelsLast};
    if (fits({{x, s.inputs[1]}, {}, s.attributes}) && convolved(x, s.inputs[1], s.attributes) == s.inputs[0]) {
      return std::vector{x};
    }
  }
  return shape_error(kinds::kConv2dInputGradient, s,
                     "dy f32[N,O,Y,X]{nhwc} and w f32[O,C/groups,R,S] of a conv2d with these "
                     "attributes, and its input_shape=[N,C,H,W]");
}

std::unique_ptr<Kernel> input_gradient_numerics(const Signature& s) {
  const Geometry g(s.attributes);
  const TensorType& dy = s.inputs[0];
  const TensorType& dx = s.outputs[0];
  if (const auto p = pixel_product_of(dx, s.inputs[1], g)) {
    return matmul_kernel(p->y(), p->w(), p->x(), false);
  }
  const TensorType w = weights_of(s.inputs[1], g.groups);
  const dnnl::convolution_backward_data::primitive_desc plan(
      {dnnl::algorithm::convolution_direct, dnnl_desc(dx), dnnl_desc_any(w), dnnl_desc(dy), g.stride, g.dilation,
       g.pad_begin, g.pad_end},
      dnnl_attributes(), dnnl_cpu(), plan_forward(dx, w, dy, g, false));
  return std::make_unique<DnnlKernel>(
      dnnl::convolution_backward_data(plan), plan.scratchpad_desc(),
      std::vector<DnnlKernel::Argument>{{DNNL_ARG_DIFF_DST, false, 0, dnnl_desc(dy), plan.diff_dst_desc()},
                                        {DNNL_ARG_WEIGHTS, false, 1, dnnl_desc(w), plan.weights_desc()},
                                        {DNNL_ARG_DIFF_SRC, true, 0, dnnl_desc(dx), plan.diff_src_desc()}});
}

Work input_gradient_work(const Signature& s) {
  return product_work(s, macs(s.inputs[0], s.inputs[1]));
}

/// Returns the product for the planner. dx[x] is the sum of dy[y] w[k] with y * stride + k * dilation - pad = x, which
/// is a convolution of dy, whose elements are spread `stride` apart, with the flipped kernel.
Product input_gradient_product(const Signature& s) {
  return input_gradient(product_of(s, s.outputs[0], s.inputs[1], s.inputs[0]));
}

OperandAxes input_gradient_axes(const Signature& /*s*/) {
  return {.input = {kBatch, kRows, kColumns, kGroups, kInputs},
          .weights = {kGroups, kInputs, kOutputs, kRows, kColumns},
          .output = {kBatch, kRows, kColumns, kGroups, kOutputs}};
}

/// conv2d_weight_gradient(x, dy) kernel=[R,S] bias=0|1 and conv2d's attributes  ->  dw, and db if bias=1
Result<std::vector<TensorType>> weight_gradient_shape(const Signature& s) {
  if (s.inputs.size() != 2 || !is_image(s.inputs[0]) || !is_image(s.inputs[1]) || !has_geometry(s.attributes) ||
      !are_integers(s.attributes, "kernel", 2, 1) || !s.attributes.has("bias")) {
    return shape_error("conv2d_weight_gradient", s, "x, dy, kernel=[R,S], bias=0|1 and conv2d's attributes");
  }
  const auto& kernel = s.attributes.integers("kernel");
  const std::int64_t groups = s.attributes.integer("groups");
  const std::int64_t O = s.inputs[1].shape[1];
  std::vector<TensorType> types = {{DataType::kF32, {O, s.inputs[0].shape[1] / groups, kernel[0], kernel[1]}, {}}};
  if (s.attributes.integer("bias") != 0) {
    types.push_back({DataType::kF32, {O}, {}});
  }
  return types;
}

/// Computes dw = dy^T x.
class ProductOfGradients final : public Kernel {
 public:
  explicit ProductOfGradients(const PixelProduct& p)
      : product_(matmul_kernel(p.y().transposed(), p.x(), p.w(), false)) {}
  void run(const Operands& t) override { product_->run({{t.inputs[1], t.inputs[0]}, {t.outputs[0]}, t.scratch}); }
  [[nodiscard]] Bytes scratch() const override { return product_->scratch(); }

 private:
  std::unique_ptr<Kernel> product_;
};

std::unique_ptr<Kernel> weight_product(const Signature& s) {
  const Geometry g(s.attributes);
  const TensorType& x = s.inputs[0];
  const TensorType& dy = s.inputs[1];
  const TensorType dw = weights_of(s.outputs[0], g.groups);
  if (const auto p = pixel_product_of(x, s.outputs[0], g)) {
    return std::make_unique<ProductOfGradients>(*p);
  }
  const dnnl::convolution_backward_weights::primitive_desc plan(
      {dnnl::algorithm::convolution_direct, dnnl_desc(x), dnnl_desc_any(dw), memory::desc(), dnnl_desc(dy), g.stride,
       g.dilation, g.pad_begin, g.pad_end},
      dnnl_attributes(), dnnl_cpu(), plan_forward(x, dw, dy, g, false));
  const std::vector<DnnlKernel::Argument> arguments = {
      {DNNL_ARG_SRC, false, 0, dnnl_desc(x), plan.src_desc()},
      {DNNL_ARG_DIFF_DST, false, 1, dnnl_desc(dy), plan.diff_dst_desc()},
      {DNNL_ARG_DIFF_WEIGHTS, true, 0, dnnl_desc(dw), plan.diff_weights_desc()}};
  return std::make_unique<DnnlKernel>(dnnl::convolution_backward_weights(plan), plan.scratchpad_desc(), arguments);
}

std::unique_ptr<Kernel> weight_gradient_numerics(const Signature& s) {
  if (s.outputs.size() == 1) {
    return weight_product(s);
  }
  const std::int64_t O = s.inputs[1].shape[1];
  return with_column_sums(weight_product(s), s.inputs[1].elements() / O, O);
}

Work weight_gradient_work(const Signature& s) {
  return product_work(s, macs(s.inputs[1], s.outputs[0]), s.outputs.size() == 2 ? s.inputs[1].elements() : 0);
}

/// Returns the product for the planner. dw[k] is the sum of x[k * dilation + y * stride - pad] dy[y], which is a
/// convolution of x with dy, whose elements are spread `stride` apart, summed over the images.
Product weight_gradient_product(const Signature& s) {
  return weight_gradient(product_of(s, s.inputs[0], s.outputs[0], s.inputs[1]));
}

OperandAxes weight_gradient_axes(const Signature& /*s*/) {
  return {.input = {kInputs, kRows, kColumns, kGroups, kBatch},
          .weights = {kInputs, kRows, kColumns, kGroups, kOutputs},
          .output = {kGroups, kOutputs, kBatch, kRows, kColumns}};
}

void gradient(Differentiator& d) {
  const Operation& op = d.operation();
  const TensorId x = op.inputs[0];
  const TensorId w = op.inputs[1];
  const TensorId dy = d.output_gradient(0);
  const Shape& kernel = d.type(w).shape;
  const bool with_bias = op.inputs.size() == 3;
  Attributes weight_attributes = op.attributes;
  weight_attributes.set("kernel", std::vector<std::int64_t>{kernel[2], kernel[3]});
  weight_attributes.set("bias", std::int64_t{with_bias});
  std::vector<std::size_t> of_input = {1};
  if (with_bias) {
    of_input.push_back(2);
  }
  const auto weight_gradients = d.add("conv2d_weight_gradient", {x, dy}, weight_attributes, of_input);
  for (std::size_t k = 0; k < of_input.size(); ++k) {
    d.set_input_gradient(of_input[k], weight_gradients[k]);
  }
  if (d.wants(0)) {
    Attributes input_attributes = op.attributes;
    input_attributes.set("input_shape", d.type(x).shape);
    d.set_input_gradient(0, d.add(kinds::kConv2dInputGradient, {dy, w}, input_attributes, {0})[0]);
  }
}

/// Return the dimensions over which the three passes sum: input channels, output channels and images.
std::vector<std::int64_t> contraction(const Signature& s) {
  return s.attributes.integer("groups") == 1 ? std::vector<std::int64_t>{1, 1, kNoAxis} : std::vector<std::int64_t>{};
}
std::vector<std::int64_t> input_gradient_contraction(const Signature& s) {
  return s.attributes.integer("groups") == 1 ? std::vector<std::int64_t>{1, 0} : std::vector<std::int64_t>{};
}
std::vector<std::int64_t> weight_gradient_contraction(const Signature& /*s*/) {
  return {0, 0};
}

void input_gradient_gradient(Differentiator& d) {
  const Operation& op = d.operation();
  const TensorId dy = op.inputs[0];
  const TensorId w = op.inputs[1];
  const TensorId dx = d.output_gradient(0);
  const Shape kernel = d.type(w).shape;  // This is a copy, because adding operations moves tensors.
  Attributes attributes = d.operation().attributes;
  if (d.wants(0)) {
    d.set_input_gradient(0, d.add(kinds::kConv2d, {dx, w}, attributes, {0})[0]);
  }
  if (d.wants(1)) {
    attributes.set("kernel", std::vector<std::int64_t>{kernel[2], kernel[3]});
    attributes.set("bias", std::int64_t{0});
    d.set_input_gradient(1, d.add("conv2d_weight_gradient", {dx, dy}, attributes, {1})[0]);
  }
}

}  // namespace

std::vector<Operator> operators() {
  return {
      {kinds::kConv2d, shape, gradient, work, numerics, contraction, product, operand_axes},
      {kinds::kConv2dInputGradient, input_gradient_shape, input_gradient_gradient, input_gradient_work,
       input_gradient_numerics, input_gradient_contraction, input_gradient_product, input_gradient_axes},
      {"conv2d_weight_gradient", weight_gradient_shape, nullptr, weight_gradient_work, weight_gradient_numerics,
       weight_gradient_contraction, weight_gradient_product, weight_gradient_axes},
  };
}

}  // namespace poprun::ops::conv2d
