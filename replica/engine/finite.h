#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "replica/graph/types.h"

namespace poprun {

inline constexpr std::string_view kInfinity = "infinity";

/// An element that is no number.
struct NotFinite {
  std::string_view what;  ///< "NaN" or kInfinity.
  std::int64_t element;   ///< As the elements lie.
};

/// The first of a float tensor's elements that is NaN, or else the first that is infinite; integers
/// are always finite. Cost: one read of the bytes, several elements at a time; more where it finds
/// something.
std::optional<NotFinite> find_not_finite(const TensorType& type, std::span<const std::byte> bytes);

/// Whether an element is infinite, or no smaller than the largest finite number of its own type or
/// of type `result`: what masks are made of, and what no sum brings back.
bool has_extreme(const TensorType& type, std::span<const std::byte> bytes, DataType result);

}  // namespace poprun
