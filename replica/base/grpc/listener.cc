#include "replica/base/grpc/listener.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include <asio/buffer.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "replica/base/grpc/channel.h"
#include "replica/base/rare.h"

namespace poprun {

bool HeaderGuard::take(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (skip_ > 0) {
      const std::size_t now = std::min(skip_, bytes.size());
      skip_ -= now;
      bytes = bytes.subspan(now);
      continue;
    }
    head_[head_bytes_++] = std::to_integer<std::uint8_t>(bytes.front());
    bytes = bytes.subspan(1);
    if (head_bytes_ == sizeof head_) {
      head_bytes_ = 0;
      begin_frame();
      if (block_bytes_ > block_bytes_max_ || block_frames_ > block_bytes_max_ / 512) {
        return false;
      }
    }
  }
  return true;
}

void HeaderGuard::begin_frame() {
  constexpr std::uint8_t kHeaders = 1;
  constexpr std::uint8_t kContinuation = 9;
  skip_ = (std::size_t{head_[0]} << 16U) | (std::size_t{head_[1]} << 8U) | head_[2];
  const std::uint8_t type = head_[3];
  if (type == kHeaders) {
    ++calls_;
    block_bytes_ = 0;
    block_frames_ = 0;
  }
  if (type == kHeaders || type == kContinuation) {
    block_bytes_ += skip_;
    ++block_frames_;
  }
}

namespace {

namespace local = asio::local;
using asio::ip::tcp;

constexpr std::size_t kPieceBytes = 256 << 10;
constexpr std::chrono::milliseconds kBackOff{50};
constexpr std::chrono::seconds kFarewell{1};

/// Copies the bytes of one plain-text connection between the client and gRPC. Each direction ends by passing on its
/// end; when both have ended, nobody holds the relay any more. Threads: the listener's.
class Relay : public std::enable_shared_from_this<Relay> {
 public:
  Relay(asio::io_context& loop, int client, int server, std::size_t header_bytes)
      : client_(loop, tcp::v6(), client),
        server_(loop, local::stream_protocol(), server),
        silence_(loop),
        guard_(header_bytes) {}

  void start(std::chrono::milliseconds silence) {
    silence_.expires_after(silence);
    silence_.async_wait([self = shared_from_this()](const asio::error_code& error) {
      if (!error && !self->has_called()) {
        POPRUN_RARE("listener.silent-client");
        self->close();
      }
    });
    up();
    down();
  }

  [[nodiscard]] bool has_called() const { return guard_.has_called(); }
  /// A closed relay lives until its handlers have run.
  [[nodiscard]] bool is_open() const { return client_.is_open(); }

  void close() {
    asio::error_code unused;
    client_.close(unused);
    server_.close(unused);
    silence_.cancel();
  }

 private:
  void up() {
    client_.async_read_some(
        asio::buffer(from_client_),
        [self = shared_from_this()](const asio::error_code& error, std::size_t count) { self->take(error, count); });
  }

  void take(const asio::error_code& error, std::size_t count) {
    if (error) {
      asio::error_code unused;
      server_.shutdown(asio::socket_base::shutdown_send, unused);
      return;
    }
    if (!guard_.take(std::as_bytes(std::span(from_client_).first(count)))) {
      POPRUN_RARE("listener.endless-header");
      close();
      return;
    }
    asio::async_write(server_, asio::buffer(from_client_, count),
                      [self = shared_from_this()](const asio::error_code& failed, std::size_t) {
                        if (!failed) {
                          self->up();
                        }
                      });
  }

  void down() {
    server_.async_read_some(asio::buffer(from_server_), [self = shared_from_this()](const asio::error_code& error,
                                                                                    std::size_t count) {
      if (error) {
        self->close();
        return;
      }
      asio::async_write(self->client_, asio::buffer(self->from_server_, count),
                        [self](const asio::error_code& failed, std::size_t) { failed ? self->close() : self->down(); });
    });
  }

  tcp::socket client_;
  local::stream_protocol::socket server_;
  asio::steady_timer silence_;
  HeaderGuard guard_;
  std::vector<char> from_client_ = std::vector<char>(16 << 10);
  std::vector<char> from_server_ = std::vector<char>(kPieceBytes);
};

class Port final : public Listener {
 public:
  explicit Port(const Limits& limits) : limits_(limits), back_off_(loop_), farewell_(loop_) {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    const auto most = static_cast<std::size_t>(files.rlim_cur);
    files_max_ = most > 2 * limits.files_kept ? most - limits.files_kept : most / 2;
  }

  ~Port() override {
    stop();
    if (reserve_ >= 0) {
      close(reserve_);
    }
  }

  Status listen(const std::string& host, std::uint16_t port) {
    std::string bare = host;
    std::erase_if(bare, [](char c) { return c == '[' || c == ']'; });
    const bool is_any = bare == "0.0.0.0" || bare == "::";
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    addrinfo* found = nullptr;
    // The wildcard of IPv6 also stands for that of IPv4, unless this machine has no IPv6.
    if (const int code = getaddrinfo(is_any ? nullptr : bare.c_str(), "0", &hints, &found); code != 0) {
      return fail(ErrorCode::kUsage, fmt::format("cannot listen on {}: {}", host, gai_strerror(code)));
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
    Status last = fail(ErrorCode::kUsage, fmt::format("cannot listen on {}: it has no address", host));
    for (const int family : {AF_INET6, AF_INET}) {
      for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
        if (at->ai_family != family || (is_any && !sockets_.empty())) {
          continue;
        }
        if (const Status opened = listen_at(*at, host, port_ > 0 ? static_cast<std::uint16_t>(port_) : port); !opened) {
          last = opened;
        }
      }
    }
    reserve_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    return sockets_.empty() ? last : Status{};
  }

  [[nodiscard]] int port() const override { return port_; }

  void feed(grpc::ServerBuilder& builder, const std::optional<TlsIdentity>& identity) override {
    relays_plain_text_ = !identity;
    grpc_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, server_credentials(identity));
  }

  void start() override {
    for (asio::posix::stream_descriptor& socket : sockets_) {
      wait(socket);
    }
    thread_ = std::thread([this] { loop_.run(); });
  }

  void stop() override {
    if (!thread_.joinable()) {
      return;
    }
    asio::post(loop_, [this] {
      for (asio::posix::stream_descriptor& socket : sockets_) {
        asio::error_code unused;
        socket.close(unused);
      }
      back_off_.cancel();
      farewell_.expires_after(kFarewell);
      farewell_.async_wait([this](const asio::error_code&) { loop_.stop(); });
      leave_if_alone();
    });
    thread_.join();
  }

 private:
  Status listen_at(const addrinfo& address, const std::string& host, std::uint16_t port) {
    sockaddr_storage where{};
    std::memcpy(&where, address.ai_addr, address.ai_addrlen);
    // Both kinds of address have the port at the same place.
    reinterpret_cast<sockaddr_in*>(&where)->sin_port = htons(port);  // NOLINT: as sockets require.
    const int file = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;
    const int off = 0;
    setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address.ai_family == AF_INET6) {
      setsockopt(file, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (file < 0 || bind(file, reinterpret_cast<const sockaddr*>(&where), address.ai_addrlen) != 0 ||  // NOLINT
        ::listen(file, SOMAXCONN) != 0) {
      const int reason = errno;
      if (file >= 0) {
        close(file);
      }
      return reason == EADDRINUSE
                 ? fail(ErrorCode::kHostResources, fmt::format("port {} on {} is in use", port, host))
                 : fail(reason == EMFILE || reason == ENFILE ? ErrorCode::kHostResources : ErrorCode::kUsage,
                        fmt::format("cannot listen on {}:{}: {}", host, port, std::strerror(reason)));
    }
    socklen_t size = sizeof where;
    getsockname(file, reinterpret_cast<sockaddr*>(&where), &size);          // NOLINT: as sockets require.
    port_ = ntohs(reinterpret_cast<const sockaddr_in*>(&where)->sin_port);  // NOLINT: as sockets require.
    sockets_.emplace_back(loop_, file);
    return {};
  }

  void wait(asio::posix::stream_descriptor& socket) {
    socket.async_wait(asio::posix::stream_descriptor::wait_read, [this, &socket](const asio::error_code& error) {
      if (error) {
        return;
      }
      accept_all(socket);
      if (back_off_.expiry() > std::chrono::steady_clock::now()) {
        back_off_.async_wait([this, &socket](const asio::error_code& cancelled) {
          if (!cancelled) {
            wait(socket);
          }
        });
      } else {
        wait(socket);
      }
    });
  }

  void accept_all(asio::posix::stream_descriptor& socket) {
    while (true) {
      const int file = accept4(socket.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (file >= 0) {
        admit(socket.native_handle(), file);
      } else if (errno == EMFILE || errno == ENFILE) {
        turn_one_away(socket.native_handle());
        return;
      } else if (errno != EINTR && errno != ECONNABORTED) {
        return;
      }
    }
  }

  /// Uses the reserve to accept and close a connection, so that its client knows, and then waits a moment.
  void turn_one_away(int socket) {
    POPRUN_RARE("listener.no-file-left");
    close(std::exchange(reserve_, -1));
    if (const int file = accept4(socket, nullptr, nullptr, SOCK_CLOEXEC); file >= 0) {
      close(file);
    }
    reserve_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    back_off_.expires_after(kBackOff);
  }

  /// A new file gets the lowest free number, so the number shows how many files are open.
  void admit(int socket, int file) {
    const int on = 1;
    setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    std::erase_if(relays_, [](const std::weak_ptr<Relay>& candidate) {
      const std::shared_ptr<Relay> relay = candidate.lock();
      return relay == nullptr || !relay->is_open();
    });
    const bool is_full = static_cast<std::size_t>(file) + 2 >= files_max_ || relays_.size() >= limits_.connections;
    if (is_full && !close_a_silent_one()) {
      POPRUN_RARE("listener.full");
      close(file);
      return;
    }
    if (!relays_plain_text_) {
      hand_over(socket, file);
      return;
    }
    std::array<int, 2> pair{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) != 0) {
      close(file);
      return;
    }
    const auto relay = std::make_shared<Relay>(loop_, file, pair[0], limits_.header_bytes);
    relays_.push_back(relay);
    relay->start(limits_.silence);
    hand_over(socket, pair[1]);
  }

  void hand_over(int socket, int file) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.listener_fd = socket;
    parameters.fd = file;
    grpc_->HandleNewConnection(&parameters);
  }

  bool close_a_silent_one() {
    for (const std::weak_ptr<Relay>& candidate : relays_) {
      if (const std::shared_ptr<Relay> relay = candidate.lock();
          relay != nullptr && relay->is_open() && !relay->has_called()) {
        relay->close();
        return true;
      }
    }
    return false;
  }

  void leave_if_alone() {
    constexpr std::chrono::milliseconds kPoll{2};
    if (std::ranges::all_of(relays_, [](const std::weak_ptr<Relay>& relay) { return relay.expired(); })) {
      loop_.stop();
      return;
    }
    back_off_.expires_after(kPoll);
    back_off_.async_wait([this](const asio::error_code&) { leave_if_alone(); });
  }

  Limits limits_;
  std::size_t files_max_ = 0;
  int port_ = 0;
  int reserve_ = -1;
  bool relays_plain_text_ = false;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> grpc_;

  asio::io_context loop_{1};
  std::list<asio::posix::stream_descriptor> sockets_;
  std::list<std::weak_ptr<Relay>> relays_;  ///< The oldest first.
  asio::steady_timer back_off_;
  asio::steady_timer farewell_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(const std::string& host, std::uint16_t port, const Limits& limits) {
  auto made = std::make_unique<Port>(limits);
  POPRUN_TRY(made->listen(host, port));
  return made;
}

}  // namespace poprun
