#pragma once

#include <cstddef>
#include <cstdlib>

namespace poprun::testing {

/// Returns the number in an environment variable, or `otherwise` if it is not set.
inline std::size_t number_in(const char* variable, std::size_t otherwise) {
  const char* const given = std::getenv(variable);
  return given == nullptr ? otherwise : static_cast<std::size_t>(std::atol(given));
}

}  // namespace poprun::testing
