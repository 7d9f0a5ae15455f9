#include <algorithm>

#include "replica/ops/dnnl/kernel.h"
#include "replica/ops/face/kinds.h"
#include "replica/ops/face/operator.h"

/// transpose(x) perm=[..]  ->  y, whose dimension d is x's dimension perm[d]. Tensors are row-major,
/// of any element type, with at most 12 dimensions (oneDNN's limit).
namespace poprun::ops::transpose {
namespace {

Result<std::vector<TensorType>> shape(const Signature& s) {
  const auto bad = [&] {
    return shape_error(kinds::kTranspose, s, "one row-major tensor and perm=[..] that names each dimension once");
  };
  if (s.inputs.size() != 1 || s.inputs[0].layout != Layout::kRowMajor || !s.attributes.has("perm") ||
      s.inputs[0].shape.size() > 12) {
    return bad();
  }
  const Shape& x = s.inputs[0].shape;
  const auto& perm = s.attributes.integers("perm");
  Shape sorted = perm;
  std::ranges::sort(sorted);
  Shape y;
  for (std::size_t d = 0; d < perm.size(); ++d) {
    if (perm.size() != x.size() || sorted[d] != static_cast<std::int64_t>(d)) {
      return bad();
    }
    y.push_back(x[static_cast<std::size_t>(perm[d])]);
  }
  return perm.size() == x.size()
             ? Result<std::vector<TensorType>>(std::vector{TensorType{s.inputs[0].data, y, Layout::kRowMajor}})
             : bad();
}

/// Returns a descriptor of x's memory with the dimensions in y's order.
dnnl::memory::desc seen_as(const Signature& s) {
  const dnnl::memory::desc x = dnnl_desc(s.inputs[0]);
  const auto strides = x.data.format_desc.blocking.strides;
  dnnl::memory::dims permuted;
  for (const std::int64_t d : s.attributes.integers("perm")) {
    permuted.push_back(strides[d]);
  }
  return {s.outputs[0].shape, x.data_type(), permuted};
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  const auto from = seen_as(s);
  const auto to = dnnl_desc(s.outputs[0]);
  const dnnl::reorder::primitive_desc plan(dnnl_cpu(), from, dnnl_cpu(), to, dnnl_attributes());
  return std::make_unique<DnnlKernel>(
      dnnl::reorder(plan), plan.scratchpad_desc(),
      std::vector<DnnlKernel::Argument>{{DNNL_ARG_FROM, false, 0, from, from}, {DNNL_ARG_TO, true, 0, to, to}});
}

Work work(const Signature& s) {
  Work work = elementwise_work(s, 0);
  work.exchanged = s.inputs[0].bytes();
  return work;
}

/// Returns an overlay if the dimensions with more than one element keep their order, so that no element moves.
std::vector<Overlay> view(const Signature& s) {
  std::vector<std::int64_t> moving;
  for (const std::int64_t d : s.attributes.integers("perm")) {
    if (s.inputs[0].shape[static_cast<std::size_t>(d)] != 1) {
      moving.push_back(d);
    }
  }
  return s.inputs[0].data == s.outputs[0].data && std::ranges::is_sorted(moving) ? std::vector<Overlay>{{}}
                                                                                 : std::vector<Overlay>{};
}

void gradient(Differentiator& d) {
  const auto& perm = d.operation().attributes.integers("perm");
  std::vector<std::int64_t> inverse(perm.size());
  for (std::size_t i = 0; i < perm.size(); ++i) {
    inverse[static_cast<std::size_t>(perm[i])] = static_cast<std::int64_t>(i);
  }
  d.set_input_gradient(0, d.add(kinds::kTranspose, {d.output_gradient(0)}, {{"perm", inverse}}, {0})[0]);
}

}  // namespace

std::vector<Operator> operators() {
  return {{.kind = kinds::kTranspose,
           .shape = shape,
           .gradient = gradient,
           .work = work,
           .numerics = numerics,
           .view = view}};
}

}  // namespace poprun::ops::transpose
