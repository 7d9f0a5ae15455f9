#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "replica/graph/types.h"

namespace poprun {

inline constexpr std::string_view kInfinity = "infinity";

/// An element that is NaN or infinite.
struct NotFinite {
  std::string_view what;  ///< "NaN" or kInfinity.
  std::int64_t element;   ///< Index in storage order.
};

/// Returns the first NaN in a float tensor, or else its first infinite element; integers are always finite. Cost: one
/// read of the bytes, several elements at a time; more if it finds something.
std::optional<NotFinite> find_not_finite(const TensorType& type, std::span<const std::byte> bytes);

/// Whether an element is infinite, or at least as large as the largest finite number of its own type or of type
/// `result`. Masks consist of such numbers, and adding to them does not make them small again. Cost: one read of the
/// bytes, several elements at a time.
bool has_extreme(const TensorType& type, std::span<const std::byte> bytes, DataType result);

}  // namespace poprun
