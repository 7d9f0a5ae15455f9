#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "replica/choices/choices.h"
#include "replica/device/device.h"

/// The convolution planner's view of a convolution, matrix product or gradient (poplibs, lib/poplin/ConvPlan.cpp).
namespace poprun {

/// The options that apply to a product: those for convolutions or for matmuls. Dense layers are matmuls.
enum class ProductKind : std::uint8_t { kConvolution, kMatmul };
template <>
inline constexpr std::array<std::string_view, 2> kWords<ProductKind> = {"convolutions", "matmuls"};

/// The pass of training. The gradients of a plain matmul are themselves matmuls with kForward.
enum class ProductPass : std::uint8_t { kForward, kInputGradient, kWeightGradient };

/// One of the two dimensions of the field. Output y reads, for each kernel element k, the place
///
///     p(y, k) = y * stride + k * kernel_dilation - padding
///
/// of the dilated input: input element p / input_dilation if that is a whole number in 0..input - 1, and zero
/// elsewhere. A missing dimension has the values below.
struct FieldDimension {
  std::int64_t input = 1;
  std::int64_t kernel = 1;
  std::int64_t output = 1;
  std::int64_t stride = 1;
  std::int64_t input_dilation = 1;
  std::int64_t kernel_dilation = 1;
  std::int64_t padding = 0;  ///< Places before the first element; if negative, minus the number of elements omitted.

  /// Returns the number of pairs (y, k) that read an input element.
  [[nodiscard]] std::int64_t useful_pairs() const;

  friend auto operator<=>(const FieldDimension&, const FieldDimension&) = default;
};

/// For each group g, image b and output channel o:
///
///     out[b,g,o,y] = sum over i, k of  in[b,g,i,p(y,k)] * weights[g,o,i,k]
///
/// The first operand of the operation is always the input and the second is the weights, but it depends on the pass
/// which of their dimensions are batch and channels. With x [N,C,field], w [O,C/G,kernel] and y [N,O,field] of a
/// forward convolution with G groups:
///
///     pass             batch   input channels   output channels   field -> kernel -> output
///     kForward         N       C / G            O / G             x, w, y
///     kInputGradient   N       O / G            C / G             dy, w flipped, dx
///     kWeightGradient  C / G   N                O / G             x, dy, dw
///
/// For matrices [G,M,K] x [G,K,N], the batch is M, there are K input and N output channels, and field and kernel are 1.
struct Product {
  ProductKind kind = ProductKind::kConvolution;
  ProductPass pass = ProductPass::kForward;
  Arithmetic arithmetic = Arithmetic::kF32;
  std::int64_t groups = 1;
  std::int64_t batch = 1;
  std::int64_t input_channels = 1;   ///< In one group.
  std::int64_t output_channels = 1;  ///< In one group.
  std::array<FieldDimension, 2> field = {};

  /// Returns the usual number of multiply-accumulates, which is the same in the three passes: one for each output of
  /// the forward pass and each weight of its filter, including those on padding.
  [[nodiscard]] std::int64_t macs() const;

  /// Returns the number of multiply-accumulates whose operands both exist: macs() without those on padding.
  [[nodiscard]] std::int64_t useful_macs() const;

  [[nodiscard]] std::int64_t input_elements() const;
  [[nodiscard]] std::int64_t weight_elements() const;

  friend auto operator<=>(const Product&, const Product&) = default;
};

/// A dimension of a product's operand. Channels are those of one group. Rows and columns are those of the operand
/// itself: the input, the output or, for weights, the kernel.
enum class ProductAxis : std::uint8_t { kGroups, kBatch, kInputs, kOutputs, kRows, kColumns };

/// The order of a product's operands in memory: their dimensions, outermost first. An operand that every group reads in
/// full has no group dimension.
struct OperandAxes {
  std::vector<ProductAxis> input;
  std::vector<ProductAxis> weights;
  std::vector<ProductAxis> output;
};

/// Return the products that compute a forward product's input and weight gradients, according to the table above.
Product input_gradient(Product forward);
Product weight_gradient(Product forward);

/// Returns the size of an element of the input or the weights.
Bytes element_bytes(Arithmetic arithmetic);

Bytes partial_bytes(Arithmetic arithmetic);

/// Returns text like `conv forward f16 sums f32: batch 8, 64 -> 128 channels, 56x56 * 3x3 / 2 -> 28x28`. Usual values
/// (one group, stride 1, no dilation) are left out. Different products have different texts.
std::string to_text(const Product& product);

/// Hash for unordered containers, which never determine the order of results.
struct ProductHash {
  std::size_t operator()(const Product& product) const;
};

}  // namespace poprun
