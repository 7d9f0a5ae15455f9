#include <cstring>

#include "replica/ops/dnnl/kernel.h"
#include "replica/ops/operator.h"

/// reshape(x) shape=[..] layout="row-major" | "nhwc"  ->  y, the same elements in row-major logical
/// order. Changes the layout in memory where the two differ: flattening an image kept as NHWC gives
/// features in the C, H, W order that frameworks' weights expect.
namespace poprun {
namespace {

Layout layout_of(const Attributes& attributes) {
  return attributes.text("layout") == "nhwc" ? Layout::kChannelsLast : Layout::kRowMajor;
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (s.inputs.size() != 1 || !s.attributes.has("shape") || !s.attributes.has("layout")) {
    return shape_error("reshape", s, "one tensor, shape=[..] and layout=\"row-major\" or \"nhwc\"");
  }
  const TensorType y{s.inputs[0].data, s.attributes.integers("shape"), layout_of(s.attributes)};
  if (y.elements() != s.inputs[0].elements() ||
      (y.layout == Layout::kChannelsLast && y.shape.size() != 4)) {
    return shape_error("reshape", s, "a shape of as many elements, and rank 4 for nhwc");
  }
  return std::vector{y};
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const TensorType& x = s.inputs[0];
  const TensorType& y = s.outputs[0];
  if (x.layout == Layout::kRowMajor && y.layout == Layout::kRowMajor) {
    return make_kernel([bytes = static_cast<std::size_t>(x.bytes().count())](const Operands& t) {
      std::memcpy(t.outputs[0], t.inputs[0], bytes);
    });
  }
  // One reorder suffices where the shapes agree or one side is row-major: its bytes can be seen in
  // the other side's shape.
  POPRUN_CHECK(x.shape == y.shape || x.layout == Layout::kRowMajor ||
               y.layout == Layout::kRowMajor);
  TensorType from = x;
  TensorType to = y;
  (x.layout == Layout::kRowMajor ? from : to).shape =
      x.layout == Layout::kRowMajor ? y.shape : x.shape;
  const dnnl::reorder::primitive_desc plan(dnnl_cpu(), dnnl_desc(from), dnnl_cpu(), dnnl_desc(to),
                                           dnnl_attributes());
  return std::make_unique<DnnlKernel>(
      dnnl::reorder(plan), plan.scratchpad_desc(),
      std::vector<DnnlKernel::Argument>{{DNNL_ARG_FROM, false, 0, dnnl_desc(from), dnnl_desc(from)},
                                        {DNNL_ARG_TO, true, 0, dnnl_desc(to), dnnl_desc(to)}});
}

Work work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.exchanged = s.inputs[0].bytes();
  return work;
}

void gradient(Differentiator& d) {
  const TensorType& x = d.type(d.operation().inputs[0]);
  const std::string layout = x.layout == Layout::kChannelsLast ? "nhwc" : "row-major";
  d.set_input_gradient(0, d.add("reshape", {d.output_gradient(0)},
                                {{"shape", x.shape}, {"layout", layout}}, {0})[0]);
}

}  // namespace

std::vector<Operator> reshape_operators() {
  return {{"reshape", shape, gradient, work, numerics}};
}

}  // namespace poprun
