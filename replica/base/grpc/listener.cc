#include "replica/base/grpc/listener.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include <asio/buffer.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/ip/v6_only.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "replica/base/grpc/channel.h"
#include "replica/base/grpc/local_socket.h"
#include "replica/base/rare.h"
#include "replica/base/text.h"

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
constexpr int kLocalBufferBytes = 4 << 20;  ///< The system may grant less.
constexpr std::chrono::milliseconds kBackOff{50};
constexpr std::chrono::seconds kFarewell{1};

/// Copies the bytes of one plain-text connection between the client and gRPC. Each direction forwards the end of
/// its stream; once both have done so, nothing references the relay. Threads: the listener's.
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
  explicit Port(const Limits& limits) : limits_(limits), back_off_(loop_) {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    const auto most = static_cast<std::size_t>(files.rlim_cur);
    files_max_ = most > 2 * limits.files_kept ? most - limits.files_kept : most / 2;
  }

  ~Port() override {
    stop();
    close(reserve_);
  }

  Status listen(const std::string& host, std::uint16_t port) {
    const std::string bare = without_brackets(host);
    if (bare == "0.0.0.0" || bare == "::") {
      // The IPv6 wildcard includes the IPv4 wildcard, unless this machine has no IPv6.
      return listen_at({tcp::v6(), port}, host).or_else([&](const Error&) {
        return listen_at({tcp::v4(), port}, host);
      });
    }
    asio::error_code error;
    const tcp::resolver::results_type found = tcp::resolver(loop_).resolve(bare, "", tcp::resolver::passive, error);
    if (error) {
      return fail(ErrorCode::kUsage, fmt::format("cannot listen on {}: {}", host, error.message()));
    }
    Status last;
    for (const auto& entry : found) {
      const int taken = this->port();  // All addresses get the same port.
      const Status opened =
          listen_at({entry.endpoint().address(), taken > 0 ? static_cast<std::uint16_t>(taken) : port}, host);
      last = opened ? last : opened;
    }
    return acceptors_.empty() ? last : Status{};
  }

  [[nodiscard]] int port() const override {
    return acceptors_.empty() ? 0 : acceptors_.front().local_endpoint().port();
  }

  void feed(grpc::ServerBuilder& builder, const std::optional<TlsIdentity>& identity) override {
    relays_plain_text_ = !identity;
    if (!identity) {
      open_local_sockets();
    }
    grpc_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, server_credentials(identity));
  }

  void start() override {
    for (tcp::acceptor& acceptor : acceptors_) {
      wait(acceptor);
    }
    for (local::stream_protocol::acceptor& acceptor : local_acceptors_) {
      wait(acceptor);
    }
    thread_ = std::thread([this] {
      loop_.run();  // Until `stop`.
      loop_.restart();
      loop_.run_for(kFarewell);  // Returns earlier if all relays have ended.
    });
  }

  void stop() override {
    if (!thread_.joinable()) {
      return;
    }
    asio::post(loop_, [this] {
      work_.reset();
      back_off_.cancel();
      asio::error_code unused;
      for (tcp::acceptor& acceptor : acceptors_) {
        acceptor.close(unused);
      }
      for (local::stream_protocol::acceptor& acceptor : local_acceptors_) {
        acceptor.close(unused);
      }
      loop_.stop();
    });
    thread_.join();
  }

 private:
  Status listen_at(const tcp::endpoint& where, const std::string& host) {
    asio::error_code error;
    tcp::acceptor acceptor(loop_);
    acceptor.open(where.protocol(), error);
    if (!error) {
      fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
      acceptor.non_blocking(true);
      acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    }
    if (!error && where.address().is_v6()) {
      acceptor.set_option(asio::ip::v6_only(false), error);
    }
    if (!error) {
      acceptor.bind(where, error);
    }
    if (!error) {
      acceptor.listen(tcp::acceptor::max_listen_connections, error);
    }
    if (error == asio::error::address_in_use) {
      return fail(ErrorCode::kHostResources, fmt::format("port {} on {} is in use", where.port(), host));
    }
    if (error) {
      return fail(error == asio::error::no_descriptors ? ErrorCode::kHostResources : ErrorCode::kUsage,
                  fmt::format("cannot listen on {}:{}: {}", host, where.port(), error.message()));
    }
    acceptors_.push_back(std::move(acceptor));
    return {};
  }

  /// Opens a socket for each loopback address. Clients use the port if another process has taken the name.
  void open_local_sockets() {
    for (const tcp::acceptor& acceptor : acceptors_) {
      const tcp::endpoint where = acceptor.local_endpoint();
      if (!where.address().is_loopback()) {
        continue;
      }
      asio::error_code error;
      local::stream_protocol::acceptor opened(loop_);
      opened.open({}, error);
      if (!error) {
        fcntl(opened.native_handle(), F_SETFD, FD_CLOEXEC);
        opened.non_blocking(true);
        opened.bind('\0' + local_socket_name(where.address().to_string(), where.port()), error);
      }
      if (!error) {
        opened.listen(local::stream_protocol::acceptor::max_listen_connections, error);
      }
      if (!error) {
        local_acceptors_.push_back(std::move(opened));
      }
    }
  }

  template <typename Acceptor>
  void wait(Acceptor& acceptor) {
    acceptor.async_wait(Acceptor::wait_read, [this, &acceptor](const asio::error_code& error) {
      if (error) {
        return;
      }
      if (accept_all(acceptor.native_handle())) {
        wait(acceptor);
        return;
      }
      back_off_.expires_after(kBackOff);
      back_off_.async_wait([this, &acceptor](const asio::error_code& cancelled) {
        if (!cancelled) {
          wait(acceptor);
        }
      });
    });
  }

  /// Accepts all pending connections. Returns false if the file descriptors run out.
  bool accept_all(int socket) {
    while (true) {
      const int file = accept4(socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (file >= 0) {
        admit(socket, file);
      } else if (errno == EMFILE || errno == ENFILE) {
        turn_one_away(socket);
        return false;
      } else if (errno != EINTR && errno != ECONNABORTED) {
        return true;
      }
    }
  }

  /// Uses the reserved file descriptor to accept and close a connection, so that its client does not wait in vain.
  void turn_one_away(int socket) {
    POPRUN_RARE("listener.no-file-left");
    close(reserve_);
    if (const int file = accept4(socket, nullptr, nullptr, SOCK_CLOEXEC); file >= 0) {
      close(file);
    }
    reserve_ = any_file();
  }

  /// A new file gets the lowest free descriptor, which therefore shows how many files are open.
  void admit(int socket, int file) {
    const bool is_local = is_local_socket(file);
    if (is_local && !is_peer_of_our_user(file)) {
      POPRUN_RARE("listener.other-user");
      close(file);
      return;
    }
    set_options(file, is_local);
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
    if (is_local || !relays_plain_text_) {
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

  /// Linux enlarges the buffers of TCP by itself, but not those of Unix sockets.
  static void set_options(int socket, bool is_local) {
    if (is_local) {
      setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kLocalBufferBytes, sizeof kLocalBufferBytes);
    } else {
      const int on = 1;
      setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
  }

  static bool is_local_socket(int socket) {
    int domain = 0;
    socklen_t size = sizeof domain;
    return getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
  }

  static int any_file() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

  Limits limits_;
  std::size_t files_max_ = 0;
  int reserve_ = any_file();  ///< Reserved file descriptor, closed if the others run out.
  bool relays_plain_text_ = false;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> grpc_;

  asio::io_context loop_{1};
  std::list<tcp::acceptor> acceptors_;
  std::list<local::stream_protocol::acceptor> local_acceptors_;
  std::list<std::weak_ptr<Relay>> relays_;  ///< The oldest first.
  asio::steady_timer back_off_;
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(loop_);
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(const std::string& host, std::uint16_t port, const Limits& limits) {
  auto made = std::make_unique<Port>(limits);
  POPRUN_TRY(made->listen(host, port));
  return made;
}

}  // namespace poprun
