#include "replica/ops/dnnl/matmul.h"

#include <utility>

#include "replica/ops/dnnl/kernel.h"

namespace poprun {

DnnlMatrix DnnlMatrix::plain(dnnl::memory::dims dims) {
  dnnl::memory::dims strides(dims.size(), 1);
  for (std::size_t i = dims.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * dims[i];
  }
  return {std::move(dims), std::move(strides)};
}

DnnlMatrix DnnlMatrix::transposed() const {
  DnnlMatrix other = *this;
  const std::size_t last = dims.size() - 1;
  std::swap(other.dims[last], other.dims[last - 1]);
  std::swap(other.strides[last], other.strides[last - 1]);
  return other;
}

std::unique_ptr<Kernel> matmul_kernel(const DnnlMatrix& a, const DnnlMatrix& b, const DnnlMatrix& c, bool with_bias,
                                      float scale) {
  dnnl::memory::dims bias_dims(c.dims.size(), 1);
  bias_dims.back() = c.dims.back();
  const dnnl::memory::desc bias = DnnlMatrix::plain(bias_dims).desc();
  dnnl::primitive_attr attributes = dnnl_attributes();
  if (scale != 1.0F) {
    attributes.set_output_scales(0, {scale});
  }
  const dnnl::matmul::desc desc = with_bias ? dnnl::matmul::desc(a.desc(), b.desc(), bias, c.desc())
                                            : dnnl::matmul::desc(a.desc(), b.desc(), c.desc());
  const dnnl::matmul::primitive_desc plan(desc, attributes, dnnl_cpu());
  std::vector<DnnlKernel::Argument> arguments = {{DNNL_ARG_SRC, false, 0, a.desc(), a.desc()},
                                                 {DNNL_ARG_WEIGHTS, false, 1, b.desc(), b.desc()},
                                                 {DNNL_ARG_DST, true, 0, c.desc(), c.desc()}};
  if (with_bias) {
    arguments.push_back({DNNL_ARG_BIAS, false, 2, bias, bias});
  }
  return std::make_unique<DnnlKernel>(dnnl::matmul(plan), plan.scratchpad_desc(), arguments);
}

}  // namespace poprun
