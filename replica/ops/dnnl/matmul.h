#pragma once

#include <memory>

#include <dnnl.hpp>

#include "replica/ops/face/operator.h"

namespace poprun {

/// Matrices as oneDNN sees them: dims [batch..., rows, columns] and strides in elements, so that the bytes can be used
/// transposed or with flattened leading dimensions without a copy.
struct DnnlMatrix {
  dnnl::memory::dims dims;
  dnnl::memory::dims strides;

  /// Row-major matrices.
  static DnnlMatrix plain(dnnl::memory::dims dims);

  /// The same bytes with rows and columns exchanged.
  [[nodiscard]] DnnlMatrix transposed() const;

  [[nodiscard]] dnnl::memory::desc desc() const { return {dims, dnnl::memory::data_type::f32, strides}; }
};

/// c = scale * a b (+ bias, one value per column). a is input 0, b input 1, bias input 2, c output 0. Batch dimensions
/// of a and b that are 1 are repeated.
std::unique_ptr<Kernel> matmul_kernel(const DnnlMatrix& a, const DnnlMatrix& b, const DnnlMatrix& c, bool with_bias,
                                      float scale = 1);

}  // namespace poprun
