#include "launcher/metrics/live_page.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "launcher/metrics/page_text.h"  // Generated: kPageHtml, kPageStyle and kPageScript.
#include "replica/base/error.h"
#include "replica/base/sha256.h"

namespace poprun::launcher {
namespace {

constexpr std::string_view kSafe =
    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n"
    "Cache-Control: no-store\r\n";

/// Replaces `mark`, which occurs once, by `text`.
void put(std::string& page, std::string_view mark, std::string_view text) {
  const std::size_t at = page.find(mark);
  POPRUN_CHECK(at != std::string::npos);
  page.replace(at, mark.size(), text);
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t k = 0; k < bytes.size(); k += 3) {
    const std::string_view group = bytes.substr(k, 3);
    std::uint32_t bits = 0;
    for (std::size_t byte = 0; byte < 3; ++byte) {
      bits = bits << 8U | (byte < group.size() ? static_cast<unsigned char>(group[byte]) : 0U);
    }
    for (std::size_t digit = 0; digit < 4; ++digit) {
      text += digit <= group.size() ? kDigits[bits >> (18 - 6 * digit) & 63U] : '=';
    }
  }
  return text;
}

/// Returns the hash of a style or script, as Content-Security-Policy expects it.
std::string source_hash(std::string_view text) {
  const std::string digits = sha256_of(text);
  std::string bytes;
  for (std::size_t k = 0; k < digits.size(); k += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(k, 2), nullptr, 16));
  }
  return fmt::format("'sha256-{}'", base64(bytes));
}

}  // namespace

std::string live_page() {
  std::string page(kPageHtml);
  put(page, "/*page.css*/", kPageStyle);
  put(page, "/*page.js*/", kPageScript);
  return page;
}

std::string live_page_fields() {
  return fmt::format(
      "Content-Security-Policy: default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; "
      "base-uri 'none'; form-action 'none'\r\n{}",
      source_hash(kPageScript), source_hash(kPageStyle), kSafe);
}

std::string status_fields() {
  return fmt::format("Content-Security-Policy: default-src 'none'\r\n{}", kSafe);
}

}  // namespace poprun::launcher
