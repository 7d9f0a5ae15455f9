#include "hostio/formats/printable.h"

#include <fmt/format.h>

namespace poprun::hostio {
namespace {

/// Returns the bytes of the UTF-8 character at the beginning of the text; 0 if it is damaged or a control character.
std::size_t character_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t bytes = first < 0x80   ? 1
                            : first < 0xC2 ? 0
                            : first < 0xE0 ? 2
                            : first < 0xF0 ? 3
                            : first < 0xF5 ? 4
                                           : 0;
  if (bytes == 0 || bytes > text.size() || (bytes == 1 && (first < 0x20 || first == 0x7F))) {
    return 0;
  }
  for (const char c : text.substr(1, bytes - 1)) {
    if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80) {
      return 0;
    }
  }
  const auto second = bytes > 1 ? static_cast<unsigned char>(text[1]) : 0U;
  const bool is_control = first == 0xC2 && second < 0xA0;
  const bool is_overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool is_no_character = (first == 0xED && second >= 0xA0) || (first == 0xF4 && second >= 0x90);
  return is_control || is_overlong || is_no_character ? 0 : bytes;
}

std::string shown(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    result +=
        bytes > 0 ? std::string{text.substr(0, bytes)} : fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    text.remove_prefix(bytes > 0 ? bytes : 1);
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text, std::size_t most) {
  if (text.size() <= most) {
    return shown(text);
  }
  return shown(text.substr(0, most / 2)) + ".." + shown(text.substr(text.size() - most / 2));
}

}  // namespace poprun::hostio
