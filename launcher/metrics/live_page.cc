#include "launcher/metrics/live_page.h"

#include <string_view>

#include <fmt/format.h>

#include "launcher/metrics/page_text.h"  // Generated: kPageHtml, kPageStyle and kPageScript.
#include "replica/base/sha256.h"

namespace poprun::launcher {
namespace {

constexpr std::string_view kSafe =
    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n"
    "Cache-Control: no-store\r\n";

/// Returns the hash of a style or script, as Content-Security-Policy expects it.
std::string source_hash(std::string_view text) {
  Sha256 sha;
  sha.add(text);
  return fmt::format("'sha256-{}'", base64(sha.digest_bytes()));
}

}  // namespace

std::string live_page() {
  return std::string(kPageHtml);
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
