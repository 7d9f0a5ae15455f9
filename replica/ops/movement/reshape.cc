#include <cstring>

#include "replica/ops/dnnl/kernel.h"
#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"
#include "replica/ops/face/shaped.h"

/// reshape(x) shape=[..] layout="row-major" | "nhwc"  ->  y, the same elements in row-major logical order. If the
/// layouts differ, memory is reordered, so that flattened NHWC images give features in the order C, H, W that
/// frameworks expect.
namespace poprun::ops::reshape {
namespace {

Result<std::vector<TensorType>> shape(const Signature& s) {
  const auto y = s.inputs.size() == 1 ? shaped_type(s.inputs[0].data, s.attributes) : std::nullopt;
  if (!y || y->elements() != s.inputs[0].elements()) {
    return shape_error(kinds::kReshape, s,
                       "one tensor, a shape=[..] with the same number of elements, and layout=\"row-major\" or "
                       "\"nhwc\" (only for rank 4)");
  }
  return std::vector{*y};
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const TensorType& x = s.inputs[0];
  const TensorType& y = s.outputs[0];
  if (x.layout == Layout::kRowMajor && y.layout == Layout::kRowMajor) {
    return make_kernel([bytes = static_cast<std::size_t>(x.bytes().count())](const Operands& t) {
      std::memcpy(t.outputs[0], t.inputs[0], bytes);
    });
  }
  // One reorder suffices if the shapes are equal, or if one side is row-major and can be viewed in the other's shape.
  POPRUN_CHECK(x.shape == y.shape || x.layout == Layout::kRowMajor || y.layout == Layout::kRowMajor);
  TensorType from = x;
  TensorType to = y;
  (x.layout == Layout::kRowMajor ? from : to).shape = x.layout == Layout::kRowMajor ? y.shape : x.shape;
  const dnnl::reorder::primitive_desc plan(dnnl_cpu(), dnnl_desc(from), dnnl_cpu(), dnnl_desc(to), dnnl_attributes());
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

/// Returns whether a tensor's elements are stored in row-major logical order.
bool is_in_order(const TensorType& type) {
  return type.layout == Layout::kRowMajor || type.shape[1] == 1 || (type.shape[2] == 1 && type.shape[3] == 1);
}

std::vector<Overlay> view(const Signature& s) {
  const TensorType& x = s.inputs[0];
  const TensorType& y = s.outputs[0];
  const bool stays = x == y || (x.data == y.data && is_in_order(x) && is_in_order(y));
  return stays ? std::vector<Overlay>{{}} : std::vector<Overlay>{};
}

void gradient(Differentiator& d) {
  const TensorType& x = d.type(d.operation().inputs[0]);
  d.set_input_gradient(0, d.add(kinds::kReshape, {d.output_gradient(0)}, shaped(x.shape, x.layout), {0})[0]);
}

}  // namespace

std::vector<Operator> operators() {
  return {{.kind = kinds::kReshape,
           .shape = shape,
           .gradient = gradient,
           .work = work,
           .numerics = numerics,
           .view = view}};
}

}  // namespace poprun::ops::reshape
