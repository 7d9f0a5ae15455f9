#include "replica/engine/product_watch.h"

#include <algorithm>
#include <cfenv>
#include <iterator>
#include <vector>

#include "replica/base/simd.h"

namespace poprun {
namespace {

/// What an overflow, and the difference or product of infinities, sets.
constexpr int kFlags = FE_OVERFLOW | FE_INVALID | FE_DIVBYZERO;
constexpr std::uint32_t kExponent = 0x7F800000U;

std::int64_t extent(const Product& product, ProductAxis axis) {
  switch (axis) {
    case ProductAxis::kGroups:
      return product.groups;
    case ProductAxis::kBatch:
      return product.batch;
    case ProductAxis::kInputs:
      return product.input_channels;
    case ProductAxis::kOutputs:
      return product.output_channels;
    case ProductAxis::kRows:
      return product.field[0].output;
    case ProductAxis::kColumns:
      return product.field[1].output;
  }
  return 1;
}

/// Returns whether all elements of the runs are finite.
POPRUN_SIMD bool are_finite(const std::uint32_t* bits, std::int64_t count, std::int64_t length, std::int64_t stride) {
  std::uint32_t largest = 0;
  for (std::int64_t run = 0; run < count; ++run) {
    for (std::int64_t i = run * stride; i < run * stride + length; ++i) {
      const std::uint32_t exponent = bits[i] & kExponent;
      largest = exponent > largest ? exponent : largest;
    }
  }
  return largest != kExponent;
}

}  // namespace

std::optional<ProductWatch> ProductWatch::of(const Operator& op, const Signature& signature) {
  if (op.product == nullptr || signature.outputs[0].data != DataType::kF32) {
    return std::nullopt;
  }
  const Product product = op.product(signature);
  const std::vector<ProductAxis> result = op.operand_axes(signature).output;
  const auto product_of = [&](auto begin, auto end) {
    std::int64_t n = 1;
    std::for_each(begin, end, [&](ProductAxis axis) { n *= extent(product, axis); });
    return n;
  };
  ProductWatch watch;
  std::int64_t cost = 0;
  for (std::size_t i = 0; i < watch.slices_.size(); ++i) {
    const auto axis = std::ranges::find(result, i == 0 ? ProductAxis::kOutputs : ProductAxis::kBatch);
    if (axis == result.end()) {
      return std::nullopt;
    }
    Slice& slice = watch.slices_[i];
    slice.count = product_of(result.begin(), axis);
    slice.length = product_of(std::next(axis), result.end());
    slice.stride = slice.length * extent(product, *axis);
    // A run takes about as long to reach as 16 elements in sequence take to read.
    cost += slice.count * (slice.length + 16);
  }
  return cost < product_of(result.begin(), result.end()) / 2 ? std::optional(watch) : std::nullopt;
}

void ProductWatch::begin() {
  std::feclearexcept(kFlags);
}

bool ProductWatch::is_finite(const float* result) const {
  const auto* bits = reinterpret_cast<const std::uint32_t*>(result);  // NOLINT: bits of floats.
  return std::fetestexcept(kFlags) == 0 && std::ranges::all_of(slices_, [&](const Slice& slice) {
           return are_finite(bits, slice.count, slice.length, slice.stride);
         });
}

}  // namespace poprun
