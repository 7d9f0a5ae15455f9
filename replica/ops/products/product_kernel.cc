#include "replica/ops/products/product_kernel.h"

#include <algorithm>
#include <numeric>
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

/// Returns whether oneDNN's sgemm reads operands of an M x N result where they are stored, rather than packed: with
/// AVX2 and older, unless the result is large (oneDNN's src/cpu/x64/gemm/gemm_driver.cpp, nocopy_checker_avx2). The
/// kernels for AVX-512 gain nothing from spread rows.
bool reads_in_place(std::int64_t M, std::int64_t N) {
  constexpr double kSmall = 0.0038;
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  const bool is_old = isa == dnnl::cpu_isa::sse41 || isa == dnnl::cpu_isa::avx || isa == dnnl::cpu_isa::avx2 ||
                      isa == dnnl::cpu_isa::avx2_vnni;
  return is_old && 1.0 / static_cast<double>(M) + 1.0 / static_cast<double>(N) >= kSmall;
}

/// Returns how to lay out an operand whose columns are summed over, along the dimension `sum` of its last two, and
/// which is read for each of `uses` rows or columns of the other operand. If its rows begin at equal places of 4 KiB
/// pages, they compete for few sets of the first-level cache, and a product takes up to twice as long. A copy with the
/// rows further apart then pays if it is used often enough; the figures are measured. The product's bits are the same.
DnnlMatrix spread(const DnnlMatrix& m, std::size_t sum, std::int64_t uses) {
  constexpr std::int64_t kPageFloats = 1024;
  constexpr std::int64_t kLineFloats = 16;
  constexpr std::int64_t kUsesPerPlace = 32;
  constexpr std::int64_t kMostPlaces = 8;
  const std::size_t last = m.dims.size() - 1;
  const std::int64_t row = m.dims[sum == last ? last - 1 : last];
  const std::int64_t places = kPageFloats / std::gcd(row, kPageFloats);
  if (m.strides[sum] != row || places > kMostPlaces || uses < kUsesPerPlace * places) {
    return m;
  }
  DnnlMatrix copy = m;
  for (std::size_t d = 0; d < copy.strides.size(); ++d) {
    copy.strides[d] = m.strides[d] / row * (row + kLineFloats);
  }
  copy.strides[sum == last ? last - 1 : last] = 1;
  return copy;
}

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
  const std::size_t rank = c.dims.size();
  const std::int64_t M = c.dims[rank - 2];
  const std::int64_t N = c.dims[rank - 1];
  const bool spreads = reads_in_place(M, N);
  const dnnl::memory::desc read_a = spreads ? spread(a, rank - 1, N).desc() : a.desc();
  const dnnl::memory::desc read_b = spreads ? spread(b, rank - 2, M).desc() : b.desc();
  const dnnl::matmul::desc desc =
      with_bias ? dnnl::matmul::desc(read_a, read_b, bias, c.desc()) : dnnl::matmul::desc(read_a, read_b, c.desc());
  const dnnl::matmul::primitive_desc plan(desc, attributes, dnnl_cpu());
  std::vector<DnnlKernel::Argument> arguments = {{DNNL_ARG_SRC, false, 0, a.desc(), read_a},
                                                 {DNNL_ARG_WEIGHTS, false, 1, b.desc(), read_b},
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
