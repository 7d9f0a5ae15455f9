#include "launcher/metrics/http.h"

#include <algorithm>

#include <fmt/format.h>

namespace poprun::launcher {
namespace {

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Error";
  }
}

/// RFC 9110, section 5.6.2, as far as methods use it.
bool is_method(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= 'A' && c <= 'Z'; });
}

bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

bool ends_head(std::string_view received) {
  return received.find("\r\n\r\n") != std::string_view::npos ||
         received.find("\n\n") != std::string_view::npos;
}

tl::expected<HttpRequest, HttpRefusal> parse_head(std::string_view head) {
  std::string_view line = head.substr(0, head.find('\n'));
  if (line.ends_with('\r')) {
    line.remove_suffix(1);
  }
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) {
    return tl::unexpected(400);
  }
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!is_method(method) || !target.starts_with('/') || !is_printable(target) ||
      !version.starts_with("HTTP/")) {
    return tl::unexpected(400);
  }
  if (version != "HTTP/1.0" && version != "HTTP/1.1") {
    return tl::unexpected(505);
  }
  if (method != "GET" && method != "HEAD") {
    return tl::unexpected(405);
  }
  return HttpRequest{.path = std::string(target.substr(0, target.find('?'))),
                     .wants_body = method == "GET"};
}

std::string http_text(const HttpAnswer& answer, bool with_body) {
  const std::string_view allow = answer.status == 405 ? "Allow: GET, HEAD\r\n" : "";
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n{}",
      answer.status, reason_of(answer.status), answer.content_type, answer.body.size(), allow,
      with_body ? std::string_view(answer.body) : "");
}

HttpAnswer refusal(HttpRefusal status) {
  return {.status = status, .body = fmt::format("{}\n", reason_of(status))};
}

}  // namespace poprun::launcher
