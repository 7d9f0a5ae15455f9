#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "replica/graph/types.h"
#include "replica/ops/face/operator.h"

/// NumPy's broadcasting. Shapes are aligned at their last dimension, and a dimension that is 1 or missing is repeated
/// (numpy.org/doc/stable/user/basics.broadcasting.html).
namespace poprun {

/// Returns the shape that a and b broadcast to, or nothing if they are incompatible.
std::optional<Shape> broadcast_shape(const Shape& a, const Shape& b);

/// Returns the result type of an elementwise operator: the shape that all operands broadcast to, channels-last if any
/// operand is, with the first operand's element type. Returns nothing if shapes or layouts are incompatible.
std::optional<TensorType> broadcast_type(const std::vector<TensorType>& operands);

/// Sets an input's gradient to the sum of `gradient` (of the result's type) over the input's repeated dimensions.
void set_broadcast_gradient(Differentiator& d, std::size_t input, TensorId gradient);

/// Nested loops over a tensor's elements in memory order, with the corresponding elements of other tensors.
struct BroadcastLoops {
  Shape sizes;                 ///< Outermost first, never empty. The last size is the length of a row.
  std::vector<Shape> strides;  ///< For each operand, the stride of each loop in elements; 0 repeats an element.

  /// Return the number of elements in a row, and an operand's stride from one element of the row to the next.
  [[nodiscard]] std::int64_t row() const { return sizes.back(); }
  [[nodiscard]] std::int64_t row_stride(std::size_t operand) const { return strides[operand].back(); }

  /// Calls visit(offset of the row in the whole tensor, its offset in each operand) for all rows in order.
  template <typename Visit>
  void for_each_row(Visit visit) const {
    Shape index(sizes.size() - 1, 0);
    Shape offsets(strides.size(), 0);
    std::int64_t rows = 1;
    for (const std::int64_t size : std::span(sizes).first(index.size())) {
      rows *= size;
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      visit(r * row(), offsets);
      step(index, offsets);
    }
  }

 private:
  void step(Shape& index, Shape& offsets) const;
};

/// Returns the loops over `whole` and `operands`, in any layouts. Loops that are contiguous in all tensors are merged,
/// so that tensors of the same type give a single row. Requires: each operand broadcasts to the shape of `whole`.
BroadcastLoops broadcast_loops(const TensorType& whole, const std::vector<TensorType>& operands);

}  // namespace poprun
