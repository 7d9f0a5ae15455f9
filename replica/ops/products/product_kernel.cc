#include "replica/ops/products/product_kernel.h"

#include <algorithm>
#include <utility>

#include "replica/ops/dnnl/kernel.h"
#include "replica/ops/face/simd.h"

namespace poprun {
namespace {

constexpr std::int64_t kRowsOfBlock = 64;

POPRUN_SIMD void add_row(const float* __restrict dy, float* __restrict sum, std::int64_t O) {
  for (std::int64_t o = 0; o < O; ++o) {
    sum[o] += dy[o];
  }
}

/// Adds four consecutive rows, with the same result as four calls to add_row.
POPRUN_SIMD void add_four_rows(const float* __restrict dy, float* __restrict sum, std::int64_t O) {
  for (std::int64_t o = 0; o < O; ++o) {
    sum[o] = (((sum[o] + dy[o]) + dy[O + o]) + dy[2 * O + o]) + dy[3 * O + o];
  }
}

class WithColumnSums final : public Kernel {
 public:
  WithColumnSums(std::unique_ptr<Kernel> product, std::int64_t B, std::int64_t O)
      : product_(std::move(product)), B_(B), O_(O) {}

  void run(const Operands& t) override {
    product_->run(t);
    auto* total = reinterpret_cast<double*>(t.scratch);  // NOLINT: 64-byte aligned scratch.
    auto* block = reinterpret_cast<float*>(total + O_);  // NOLINT: 64-byte aligned scratch.
    std::fill_n(total, O_, 0.0);
    for (std::int64_t begin = 0; begin < B_; begin += kRowsOfBlock) {
      std::fill_n(block, O_, 0.0F);
      add_rows(t.input_f32(1) + begin * O_, std::min(kRowsOfBlock, B_ - begin), block);
      std::transform(block, block + O_, total, total, [](float x, double sum) { return sum + static_cast<double>(x); });
    }
    std::transform(total, total + O_, t.output_f32(1), [](double sum) { return static_cast<float>(sum); });
  }

  [[nodiscard]] Bytes scratch() const override { return std::max(product_->scratch(), Bytes{O_ * 12}); }

 private:
  void add_rows(const float* dy, std::int64_t rows, float* block) const {
    std::int64_t b = 0;
    for (; b + 4 <= rows; b += 4) {
      add_four_rows(dy + b * O_, block, O_);
    }
    for (; b < rows; ++b) {
      add_row(dy + b * O_, block, O_);
    }
  }

  std::unique_ptr<Kernel> product_;
  std::int64_t B_;
  std::int64_t O_;
};

}  // namespace

DnnlMatrix DnnlMatrix::plain(dnnl::memory::dims dims) {
  dnnl::memory::dims strides = strides_of(dims);
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

std::unique_ptr<Kernel> with_column_sums(std::unique_ptr<Kernel> product, std::int64_t B, std::int64_t O) {
  return std::make_unique<WithColumnSums>(std::move(product), B, O);
}

Work product_work(const Signature& s, std::int64_t macs, std::int64_t vector_flops) {
  Work work = elementwise_work(s, 0);
  work.macs = macs;
  work.vector_flops = vector_flops;
  for (const TensorType& input : s.inputs) {
    work.exchanged += input.bytes();
  }
  return work;
}

}  // namespace poprun
