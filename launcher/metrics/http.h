#pragma once

#include <string>
#include <string_view>

#include <tl/expected.hpp>

/// As much of HTTP/1 (RFC 9112) as a page that is only read needs. Pure text; never crashes,
/// whatever the text.
namespace poprun::launcher {

struct HttpRequest {
  std::string path;         ///< Without what follows a `?`.
  bool wants_body = false;  ///< GET; false: HEAD.
};

/// The status code that refuses the request: 400, 405 or 505.
using HttpRefusal = int;

/// True where `received` has the empty line that ends a request's head.
bool ends_head(std::string_view received);

/// What the head's first line asks for. Header fields have no effect here, nor has a body.
tl::expected<HttpRequest, HttpRefusal> parse_head(std::string_view head);

struct HttpAnswer {
  int status = 200;
  std::string_view content_type = "text/plain; charset=utf-8";
  std::string body;
};

/// Says that the connection ends with it.
std::string http_text(const HttpAnswer& answer, bool with_body);

/// The answer without a page of its own: a line for people.
HttpAnswer refusal(HttpRefusal status);

}  // namespace poprun::launcher
