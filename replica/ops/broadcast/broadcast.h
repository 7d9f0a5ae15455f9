#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "replica/graph/types.h"
#include "replica/ops/operator.h"

/// NumPy's broadcasting: shapes are aligned at their last dimension, and a dimension that is 1 or
/// missing is repeated (numpy.org/doc/stable/user/basics.broadcasting.html).
namespace poprun {

/// The shape that both broadcast to; nothing where they do not fit each other.
std::optional<Shape> broadcast_shape(const Shape& a, const Shape& b);

/// What an elementwise operator makes of `operands`: the shape they all broadcast to, channels-last
/// where an operand is, with the first operand's type of elements. Nothing where they do not fit.
std::optional<TensorType> broadcast_type(const std::vector<TensorType>& operands);

/// Sets the gradient of an input that was broadcast: `gradient`, of the result's type, summed over
/// what was repeated.
void set_broadcast_gradient(Differentiator& d, std::size_t input, TensorId gradient);

/// Nested loops over all elements of a tensor in the order in which they lie in memory, and over
/// the elements of other tensors that they meet.
struct BroadcastLoops {
  Shape sizes;                 ///< Outermost first; never empty, the last is the innermost row.
  std::vector<Shape> strides;  ///< By operand: elements to go for a step of each loop, 0 to repeat.

  /// Elements in one row, and how many rows there are.
  [[nodiscard]] std::int64_t row() const { return sizes.back(); }
  [[nodiscard]] std::int64_t row_stride(std::size_t operand) const {
    return strides[operand].back();
  }

  /// Calls visit(position of the row in the whole, offsets by operand), rows in order.
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

/// Loops over `whole` with `operands`, each of which broadcasts to whole's shape, in any layout.
/// Loops that all tensors run through in one go are merged, so that equal types give one row.
BroadcastLoops broadcast_loops(const TensorType& whole, const std::vector<TensorType>& operands);

}  // namespace poprun
