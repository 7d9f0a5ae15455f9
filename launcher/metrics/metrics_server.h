#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <tl/expected.hpp>

#include "replica/base/error.h"
#include "replica/base/grpc/identity.h"

namespace asio::ssl {
class context;
}

/// A metrics server, and the subset of HTTP/1 (RFC 9112) that it needs. The parsing functions accept any text without
/// crashing.
namespace poprun::launcher {

struct HttpRequest {
  std::string path;         ///< Without the query.
  bool wants_body = false;  ///< True for GET, false for HEAD.
};

/// Status code of a refused request: 400, 405 or 505.
using HttpRefusal = int;

/// Returns whether `received` contains the empty line that ends a request's head.
bool ends_head(std::string_view received);

/// Parses the first line of the head. Ignores header fields and a body.
tl::expected<HttpRequest, HttpRefusal> parse_head(std::string_view head);

struct HttpAnswer {
  int status = 200;
  std::string_view content_type = "text/plain; charset=utf-8";
  std::string body;
  std::string fields = {};  ///< Further header fields, each with its line end.
};

/// Formats the answer, which announces that the connection will be closed after it.
std::string http_text(const HttpAnswer& answer, bool with_body);

/// Returns a refusal, with one line of text for human readers.
HttpAnswer refusal(HttpRefusal status);

struct MetricsLimits {
  std::size_t request_bytes = 8 << 10;
  std::size_t connections = 8;
  std::chrono::milliseconds time{5000};  ///< Maximum lifetime of a connection.
};

/// Serves pages over HTTP or HTTPS on the loop's own thread: `/metrics`; `/`, the live page (live_page.h), with its
/// data
/// `/status.json`; and `/healthz`, which shows that the loop is running. The server requires no token and reveals no
/// secret: anyone who can reach its address can read every page. Nothing that a client sends has a side effect. A
/// connection serves one request. If there are too many connections, the oldest is closed.
class MetricsServer {
 public:
  using Limits = MetricsLimits;
  static constexpr Limits kLimits{};

  using Page = std::function<std::string()>;

  struct Pages {
    Page metrics;
    Page status;
  };

  /// Listens on `address`, an IPv4 or IPv6 address. If `port` is 0, any free port is used. With an `identity`,
  /// the server uses TLS and presents the identity's certificate; clients need no certificate. `loop` must outlive the
  /// server, and must not run after the server's destruction. Child processes do not inherit its sockets. Errors:
  /// kUsage if `address` does not belong to this machine, or if only root may use `port`; kHostResources if the port is
  /// in use.
  static Result<std::unique_ptr<MetricsServer>> start(asio::io_context& loop, const std::string& address,
                                                      std::uint16_t port, Pages pages,
                                                      const std::optional<TlsIdentity>& identity = std::nullopt,
                                                      Limits limits = kLimits);

  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;
  ~MetricsServer();

  /// Returns the address of the live page, such as `http://127.0.0.1:9464/`.
  [[nodiscard]] std::string url() const;
  [[nodiscard]] std::uint16_t port() const;

 private:
  class Connection;
  template <typename Stream>
  class ConnectionOver;

  MetricsServer(asio::io_context& loop, Pages pages, Limits limits);

  Status listen(const std::string& address, std::uint16_t port);
  void accept();
  void take(asio::ip::tcp::socket socket);

  Pages pages_;
  Limits limits_;
  std::unique_ptr<asio::ssl::context> tls_;  ///< Null for plain HTTP.
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer pause_;                              ///< Pause after a failed accept.
  std::vector<std::shared_ptr<Connection>> connections_;  ///< Oldest first; some may have ended.
};

}  // namespace poprun::launcher
