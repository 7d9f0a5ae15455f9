#pragma once

#include <memory>

#include <dnnl.hpp>

#include "replica/ops/face/operator.h"

namespace poprun {

/// Matrices in oneDNN's terms: dims [batch..., rows, columns] and strides in elements, so that a tensor can be used
/// transposed or with flattened leading dimensions without a copy.
struct DnnlMatrix {
  dnnl::memory::dims dims;
  dnnl::memory::dims strides;

  /// Returns row-major matrices.
  static DnnlMatrix plain(dnnl::memory::dims dims);

  /// Returns a view of the same bytes with rows and columns exchanged.
  [[nodiscard]] DnnlMatrix transposed() const;

  [[nodiscard]] dnnl::memory::desc desc() const { return {dims, dnnl::memory::data_type::f32, strides}; }
};

/// Computes c = scale * a b (+ bias, one value per column). a is input 0, b input 1, bias input 2, c output 0. Batch
/// dimensions of a and b that are 1 are repeated.
std::unique_ptr<Kernel> matmul_kernel(const DnnlMatrix& a, const DnnlMatrix& b, const DnnlMatrix& c, bool with_bias,
                                      float scale = 1);

}  // namespace poprun
