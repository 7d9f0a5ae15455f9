#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>

#include "replica/base/error.h"

namespace poprun::launcher {

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
