#include "replica/base/token.h"

#include <algorithm>
#include <cstddef>

namespace poprun {

bool equal_tokens(std::string_view given, std::string_view token) {
  const std::size_t longer = std::max(given.size(), token.size());
  unsigned difference = given.size() == token.size() ? 0U : 1U;
  for (std::size_t i = 0; i < longer; ++i) {
    const char a = i < given.size() ? given[i] : '\0';
    const char b = i < token.size() ? token[i] : '\0';
    difference |= static_cast<unsigned char>(a ^ b);
  }
  return difference == 0;
}

}  // namespace poprun
