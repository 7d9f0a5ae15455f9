#pragma once

#include <cstdint>
#include <memory>

#include <dnnl.hpp>

#include "replica/ops/face/operator.h"

namespace poprun {

/// Matrices as oneDNN describes them: dims [batch..., rows, columns] and strides in elements. A tensor can thus be used
/// transposed, or with flattened leading dimensions, without a copy.
struct DnnlMatrix {
  dnnl::memory::dims dims;
  dnnl::memory::dims strides;

  static DnnlMatrix plain(dnnl::memory::dims dims);  ///< Row-major.
  [[nodiscard]] DnnlMatrix transposed() const;       ///< The same bytes with rows and columns exchanged.

  [[nodiscard]] dnnl::memory::desc desc() const { return {dims, dnnl::memory::data_type::f32, strides}; }
};

/// Returns a kernel for c = scale * a b (+ bias, one value per column). The inputs are a, b and bias, and the output is
/// c. Batch dimensions of a and b that are 1 are repeated.
std::unique_ptr<Kernel> matmul_kernel(const DnnlMatrix& a, const DnnlMatrix& b, const DnnlMatrix& c, bool with_bias,
                                      float scale = 1);

/// Returns a kernel for the gradients of weights and bias. It runs `product`, then sums the second input, dy (B rows of
/// O floats), into the second output [O]. Rows are added in float32 within blocks, and the blocks in double, in order.
/// The error is about 1e-6 of the terms' magnitudes for any number of rows, and the result is the same on every CPU.
std::unique_ptr<Kernel> with_column_sums(std::unique_ptr<Kernel> product, std::int64_t B, std::int64_t O);

/// Returns the work of a product for which all inputs are exchanged between tiles.
Work product_work(const Signature& s, std::int64_t macs, std::int64_t vector_flops = 0);

}  // namespace poprun
