#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <tl/expected.hpp>

#include "replica/base/error.h"

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

/// Bounds of a metrics server, whatever its clients do.
struct MetricsLimits {
  std::size_t request_bytes = 8 << 10;
  std::size_t connections = 8;
  std::chrono::milliseconds time{5000};  ///< From a connection's begin to its end.
};

/// Serves two pages by HTTP on the loop's own thread: `/metrics`, and `/healthz`, which says that
/// the loop turns. It asks for no token and shows no secret; nothing that a client sends changes
/// anything.
///
/// A connection is good for one request. The oldest one makes room where there are too many.
class MetricsServer {
 public:
  using Limits = MetricsLimits;
  static constexpr Limits kLimits{};

  /// The page of `/metrics`.
  using Page = std::function<std::string()>;

  /// Listens on `address`, an IPv4 or IPv6 address; `port` 0: any that is free. `loop` must outlive
  /// this and not run once this is gone. No child process inherits a socket of it.
  ///
  /// Errors
  ///   kUsage          no address of this machine, or a port that only root may use.
  ///   kHostResources  the port is in use.
  static Result<std::unique_ptr<MetricsServer>> start(asio::io_context& loop,
                                                      const std::string& address,
                                                      std::uint16_t port, Page metrics,
                                                      Limits limits = kLimits);

  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;
  /// Closes all connections.
  ~MetricsServer();

  /// `127.0.0.1:9464`.
  [[nodiscard]] std::string host_port() const;
  [[nodiscard]] std::uint16_t port() const;

 private:
  class Connection;

  MetricsServer(asio::io_context& loop, Page metrics, Limits limits);

  Status listen(const std::string& address, std::uint16_t port);
  void accept();
  void take(asio::ip::tcp::socket socket);

  Page metrics_;
  Limits limits_;
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer pause_;                              ///< After a failed accept.
  std::vector<std::shared_ptr<Connection>> connections_;  ///< By age; some may have ended.
};

}  // namespace poprun::launcher
