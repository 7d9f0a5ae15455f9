#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "replica/ops/face/operator.h"

namespace poprun {

/// Finds out that a product's result is finite without reading all of it.
///
/// A sum of products of finite numbers that is NaN or infinite has overflowed, and the processor records this in the
/// exception flags of IEEE 754 (clause 7). An operand that is NaN or infinite sets no flag, but every result to which
/// it contributes is then NaN or infinite. By the formula of Product, an element of the input contributes to every
/// output channel at some place of its image, and an element of the weights, or of a bias, to every image at some place
/// of its output channel. So if no flag is set, the results of the first output channel of each group and of the first
/// image tell about all.
class ProductWatch {
 public:
  /// Returns a watch for result 0, or nothing if the operator is not a sum of products, the result is not float32, or
  /// reading all of it costs about as much.
  static std::optional<ProductWatch> of(const Operator& op, const Signature& signature);

  /// Clears this thread's flags. Call it before the kernel, which computes on this thread (Kernel).
  static void begin();

  /// Returns whether the result that the kernel computed after begin() is certainly finite. Cost: one read of the first
  /// output channel and the first image.
  [[nodiscard]] bool is_finite(const float* result) const;

 private:
  /// The elements with index 0 on one axis: `count` runs of `length` elements, whose starts are `stride` apart.
  struct Slice {
    std::int64_t count = 1;
    std::int64_t length = 1;
    std::int64_t stride = 1;
  };

  std::array<Slice, 2> slices_;
};

}  // namespace poprun
