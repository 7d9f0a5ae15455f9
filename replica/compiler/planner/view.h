#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "replica/device/product.h"

/// Views: other products that compute the same sums, for the planner to choose from (poplibs, lib/poplin/ConvPlan.cpp).
///
///   swap     Input and weights change places, and so do batch and output channels; the field is
///            reversed. This suits matmuls, and gradients of weights, whose kernel is larger
///            than their field.
///   expand   im2col: kernel columns, or all of the kernel, become input channels in the order
///            [kernel element, channel], and the input is copied once per kernel element.
///   combine  Groups with 1 or 2 input channels are joined, and their weights become the blocks on
///            the diagonal of otherwise zero weights.
///   flatten  Rows and columns of pointwise convolutions are joined with the batch, so that parts
///            may end within a row. Nothing is copied.
namespace poprun::planner {

/// Number of parts into which each dimension of a viewed product is split. Parallel parts are on different tiles;
/// serial parts are computed one after the other by the same tiles.
///
/// Members are in the order of tiles, outermost first (poplibs, lib/poplin/ConvPlan.cpp): tiles that differ only in
/// their output channels are neighbours and read the same inputs. Plans of equal cost are ordered by these numbers.
struct Splits {
  std::int64_t groups = 1;
  std::int64_t inputs = 1;  ///< Input channels.
  std::int64_t kernel = 1;  ///< Rows of the kernel.
  std::int64_t batch = 1;
  std::int64_t rows = 1;     ///< Rows of the output field.
  std::int64_t columns = 1;  ///< Columns of the output field.
  std::int64_t outputs = 1;  ///< Output channels.
  std::int64_t serial_inputs = 1;
  std::int64_t serial_outputs = 1;

  /// Returns how many tiles hold partial sums of one output.
  [[nodiscard]] std::int64_t reduction_depth() const { return inputs * kernel; }
  /// Returns how many tiles read the same weights.
  [[nodiscard]] std::int64_t positions() const { return batch * rows * columns; }
  [[nodiscard]] std::int64_t tiles() const { return groups * reduction_depth() * positions() * outputs; }
  [[nodiscard]] std::int64_t serial() const { return serial_inputs * serial_outputs; }

  friend auto operator<=>(const Splits&, const Splits&) = default;
};

/// Formats splits as `batch 4 x rows 14 x outputs 2, 4 steps of inputs`, or as `1 tile` if nothing is split.
std::string to_text(const Splits& splits);

struct View {
  bool swapped = false;
  std::array<bool, 2> expanded = {false, false};
  std::int64_t combined_groups = 1;  ///< Groups that were joined into one.
  bool flattened = false;            ///< The batch counts positions, and the field is one element.

  friend auto operator<=>(const View&, const View&) = default;
};

/// Formats a view, such as `swap, expand kernel`; the plain view is `as given`.
std::string to_text(const View& view);

struct ViewedProduct {
  View view;
  Product product;  ///< The product that the tiles compute, with the operands of the view.
  /// Number of elements that the view copies for an operand; 0 if the tiles read the operand as it is.
  std::int64_t copied_input = 0;
  std::int64_t copied_weights = 0;
};

/// Lists all views in a fixed order, the plain one first. A full block has `block_inputs` input channels.
std::vector<ViewedProduct> views_of(const Product& product, std::int64_t block_inputs);

}  // namespace poprun::planner
