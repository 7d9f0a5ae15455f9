#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "replica/graph/types.h"

namespace poprun {

/// An element that is no number.
struct NotFinite {
  std::string_view what;  ///< "NaN" or "infinity".
  std::int64_t element;   ///< As the elements lie.
};

/// The first of a float tensor's elements that is infinite or NaN; integers are always finite.
/// Cost: one read of the bytes, several elements at a time.
std::optional<NotFinite> find_not_finite(const TensorType& type, std::span<const std::byte> bytes);

}  // namespace poprun
