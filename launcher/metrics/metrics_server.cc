#include "launcher/metrics/metrics_server.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/ip/address.hpp>
#include <asio/ip/v6_only.hpp>
#include <asio/ssl.hpp>
#include <asio/write.hpp>
#include <fcntl.h>
#include <fmt/format.h>

#include "launcher/metrics/job_metrics.h"
#include "launcher/metrics/live_page.h"

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

/// Returns whether `text` is a token (RFC 9110, section 5.6.2) that consists only of capital letters, as methods do.
bool is_method(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= 'A' && c <= 'Z'; });
}

bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}

using asio::ip::tcp;

constexpr std::chrono::milliseconds kBetweenFailedAccepts{100};

/// Makes child processes close a socket that Asio would leave open in them.
void close_on_exec(int descriptor) {
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
}

Error why_not_listening(const tcp::endpoint& endpoint, const asio::error_code& code) {
  const std::string where = fmt::format("port {} on {}", endpoint.port(), endpoint.address().to_string());
  if (code == asio::error::address_in_use) {
    return {ErrorCode::kHostResources,
            fmt::format("cannot serve metrics: {} is in use; choose a different port with --metrics-port", where)};
  }
  return {ErrorCode::kUsage, fmt::format("cannot serve metrics on {}: {}; choose a different address or port with "
                                         "--metrics-address or --metrics-port",
                                         where, code.message())};
}

/// Requires: the identity is valid, as read_identity and identity_of_token ensure.
std::unique_ptr<asio::ssl::context> context_of(const TlsIdentity& identity) {
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  context->use_certificate_chain(asio::buffer(identity.certificate));
  context->use_private_key(asio::buffer(identity.key), asio::ssl::context::pem);
  return context;
}

HttpAnswer page_of(const std::string& path, const MetricsServer::Pages& pages) {
  if (path == "/metrics") {
    return {.content_type = Exposition::kContentType, .body = pages.metrics()};
  }
  if (path == "/") {
    return {.content_type = "text/html; charset=utf-8", .body = live_page(), .fields = live_page_fields()};
  }
  if (path == "/status.json") {
    return {.content_type = "application/json", .body = pages.status(), .fields = status_fields()};
  }
  if (path == "/healthz") {
    return {.body = "ok\n"};
  }
  return refusal(404);
}

}  // namespace

bool ends_head(std::string_view received) {
  return received.find("\r\n\r\n") != std::string_view::npos || received.find("\n\n") != std::string_view::npos;
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
  if (!is_method(method) || !target.starts_with('/') || !is_printable(target) || !version.starts_with("HTTP/")) {
    return tl::unexpected(400);
  }
  if (version != "HTTP/1.0" && version != "HTTP/1.1") {
    return tl::unexpected(505);
  }
  if (method != "GET" && method != "HEAD") {
    return tl::unexpected(405);
  }
  return HttpRequest{.path = std::string(target.substr(0, target.find('?'))), .wants_body = method == "GET"};
}

std::string http_text(const HttpAnswer& answer, bool with_body) {
  const std::string_view allow = answer.status == 405 ? "Allow: GET, HEAD\r\n" : "";
  return fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}{}Connection: close\r\n\r\n{}",
                     answer.status, reason_of(answer.status), answer.content_type, answer.body.size(), allow,
                     answer.fields, with_body ? std::string_view(answer.body) : "");
}

HttpAnswer refusal(HttpRefusal status) {
  return {.status = status, .body = fmt::format("{}\n", reason_of(status))};
}

class MetricsServer::Connection {
 public:
  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  virtual ~Connection() = default;

  virtual void begin() = 0;
  [[nodiscard]] virtual bool is_open() const = 0;
  virtual void close() = 0;
};

using Tls = asio::ssl::stream<tcp::socket>;

/// Handles one request over a Stream, which is a tcp::socket or Tls. The object lives as long as one of its handlers is
/// pending or the server refers to it.
///
///   handshake (TLS) --> reading --whole head, or too much--> writing --> awaiting the client's close --> closed
///      '---------------------'-------------------- the time is up, or the client is gone ------------------^
template <typename Stream>
class MetricsServer::ConnectionOver final : public Connection,
                                            public std::enable_shared_from_this<ConnectionOver<Stream>> {
 public:
  ConnectionOver(Stream stream, const Pages& pages, const Limits& limits)
      : stream_(std::move(stream)), deadline_(stream_.get_executor()), pages_(pages), limits_(limits) {}

  void begin() override {
    deadline_.expires_after(limits_.time);
    deadline_.async_wait([self = this->shared_from_this()](const asio::error_code& error) {
      if (!error) {
        self->close();
      }
    });
    if constexpr (std::is_same_v<Stream, Tls>) {
      stream_.async_handshake(Tls::server, unless_over([](ConnectionOver& self, std::size_t) { self.read(); }));
    } else {
      read();
    }
  }

  [[nodiscard]] bool is_open() const override { return stream_.lowest_layer().is_open(); }

  void close() override {
    asio::error_code ignored;
    stream_.lowest_layer().close(ignored);
    deadline_.cancel();
  }

 private:
  /// Returns a handler that calls `then` with the number of bytes. After an error, it closes the connection instead.
  template <typename Then>
  auto unless_over(Then then) {
    return [self = this->shared_from_this(), then](const asio::error_code& error, std::size_t bytes = 0) {
      if (error || !self->is_open()) {
        self->close();
        return;
      }
      then(*self, bytes);
    };
  }

  void read() {
    stream_.async_read_some(asio::buffer(piece_),
                            unless_over([](ConnectionOver& self, std::size_t bytes) { self.received(bytes); }));
  }

  void received(std::size_t bytes) {
    constexpr std::size_t kMarkBytesMax = 4;  // An empty line may have begun in the previous piece.
    const std::size_t looked_at = request_.size() - std::min(request_.size(), kMarkBytesMax - 1);
    request_.append(piece_.data(), bytes);
    if (ends_head(std::string_view(request_).substr(looked_at))) {
      answer();
    } else if (request_.size() >= limits_.request_bytes) {
      write(http_text(refusal(431), /*with_body=*/true));
    } else {
      read();
    }
  }

  void answer() {
    const auto request = parse_head(request_);
    write(request ? http_text(page_of(request->path, pages_), request->wants_body)
                  : http_text(refusal(request.error()), /*with_body=*/true));
  }

  void write(std::string text) {
    answer_ = std::move(text);
    asio::async_write(stream_, asio::buffer(answer_),
                      unless_over([](ConnectionOver& self, std::size_t) { self.say_goodbye(); }));
  }

  void say_goodbye() {
    if constexpr (std::is_same_v<Stream, Tls>) {
      stream_.async_shutdown(unless_over([](ConnectionOver& self, std::size_t) { self.close(); }));
    } else {
      asio::error_code ignored;
      stream_.shutdown(tcp::socket::shutdown_send, ignored);
      let_go();
    }
  }

  /// Discards further bytes until the client closes the connection or the time is up. If we closed the connection with
  /// bytes unread, TCP would reset it, and the answer would be lost.
  void let_go() {
    stream_.async_read_some(asio::buffer(piece_),
                            unless_over([](ConnectionOver& self, std::size_t) { self.let_go(); }));
  }

  Stream stream_;
  asio::steady_timer deadline_;
  const Pages& pages_;
  const Limits& limits_;
  std::array<char, 1024> piece_{};
  std::string request_;
  std::string answer_;
};

MetricsServer::MetricsServer(asio::io_context& loop, Pages pages, Limits limits)
    : pages_(std::move(pages)), limits_(limits), acceptor_(loop), pause_(loop) {}

MetricsServer::~MetricsServer() {
  for (const auto& connection : connections_) {
    connection->close();
  }
}

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(asio::io_context& loop, const std::string& address,
                                                            std::uint16_t port, Pages pages,
                                                            const std::optional<TlsIdentity>& identity, Limits limits) {
  std::unique_ptr<MetricsServer> server(new MetricsServer(loop, std::move(pages), limits));
  if (identity) {
    server->tls_ = context_of(*identity);
  }
  POPRUN_TRY(server->listen(address, port));
  server->accept();
  return server;
}

Status MetricsServer::listen(const std::string& address, std::uint16_t port) {
  asio::error_code error;
  const asio::ip::address parsed = asio::ip::make_address(address, error);
  if (error) {
    return fail(
        ErrorCode::kUsage,
        fmt::format("cannot serve metrics on {}: it is not an IP address; choose one with --metrics-address", address));
  }
  const tcp::endpoint endpoint(parsed, port);
  acceptor_.open(endpoint.protocol(), error);
  if (!error) {
    close_on_exec(acceptor_.native_handle());
    acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  }
  if (!error && parsed.is_v6()) {
    acceptor_.set_option(asio::ip::v6_only(false), error);  // `::` also accepts IPv4.
  }
  if (!error) {
    acceptor_.bind(endpoint, error);
  }
  if (!error) {
    acceptor_.listen(tcp::acceptor::max_listen_connections, error);
  }
  return error ? Status{tl::unexpected(why_not_listening(endpoint, error))} : Status{};
}

void MetricsServer::accept() {
  acceptor_.async_accept([this](const asio::error_code& error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) {
      return;
    }
    if (!error) {
      take(std::move(socket));
      accept();
      return;
    }
    // No file descriptor is free, so an immediate retry would also fail.
    pause_.expires_after(kBetweenFailedAccepts);
    pause_.async_wait([this](const asio::error_code& cancelled) {
      if (!cancelled) {
        accept();
      }
    });
  });
}

void MetricsServer::take(tcp::socket socket) {
  close_on_exec(socket.native_handle());
  std::erase_if(connections_, [](const auto& connection) { return !connection->is_open(); });
  if (connections_.size() >= limits_.connections) {
    connections_.front()->close();
    connections_.erase(connections_.begin());
  }
  if (tls_) {
    connections_.push_back(std::make_shared<ConnectionOver<Tls>>(Tls(std::move(socket), *tls_), pages_, limits_));
  } else {
    connections_.push_back(std::make_shared<ConnectionOver<tcp::socket>>(std::move(socket), pages_, limits_));
  }
  connections_.back()->begin();
}

std::uint16_t MetricsServer::port() const {
  asio::error_code ignored;
  return acceptor_.local_endpoint(ignored).port();
}

std::string MetricsServer::url() const {
  asio::error_code ignored;
  const tcp::endpoint endpoint = acceptor_.local_endpoint(ignored);
  const std::string address = endpoint.address().to_string();
  return fmt::format("{}://{}:{}/", tls_ ? "https" : "http",
                     endpoint.address().is_v6() ? fmt::format("[{}]", address) : address, endpoint.port());
}

}  // namespace poprun::launcher
