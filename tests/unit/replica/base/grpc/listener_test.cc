#include "replica/base/grpc/listener.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "replica/base/grpc/channel.h"
#include "replica/base/grpc/local_socket.h"

namespace poprun {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::uint8_t kData = 0;
constexpr std::uint8_t kHeaders = 1;
constexpr std::uint8_t kContinuation = 9;

std::string frame(std::uint8_t type, std::size_t bytes) {
  std::string text{static_cast<char>(bytes >> 16U), static_cast<char>(bytes >> 8U), static_cast<char>(bytes),
                   static_cast<char>(type)};
  return text + std::string(5 + bytes, '\0');
}

const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const std::string kSettings = frame(4, 0);

bool passes(const std::string& bytes, std::size_t piece) {
  HeaderGuard guard(9 * 1024);
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    if (!guard.take(std::as_bytes(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at))))) {
      return false;
    }
  }
  return true;
}

TEST(HeaderGuard, StopsACallWhoseHeadersAreTooLarge) {
  const std::string begin = kPreface + kSettings;
  const std::string many = frame(kContinuation, 0) + frame(kContinuation, 0) + frame(kContinuation, 0);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{100'000}}) {
    SCOPED_TRACE(piece);
    EXPECT_TRUE(passes(begin + frame(kHeaders, 9 * 1024), piece));
    EXPECT_FALSE(passes(begin + frame(kHeaders, 9 * 1024 + 1), piece));
    EXPECT_TRUE(passes(begin + frame(kHeaders, 5000) + frame(kData, 100'000) + frame(kHeaders, 5000), piece));
    EXPECT_FALSE(passes(begin + frame(kHeaders, 5000) + frame(kContinuation, 5000), piece));
    EXPECT_TRUE(passes(begin + frame(kHeaders, 1) + many, piece));
    EXPECT_FALSE(passes(begin + frame(kHeaders, 1) + many + many + many + many + many + many, piece));
  }
}

/// A gRPC server that knows no method.
class ListenerTest : public ::testing::Test {
 protected:
  void serve(const ListenerLimits& limits) {
    auto opened = Listener::open("127.0.0.1", 0, limits);
    ASSERT_TRUE(opened) << opened.error().message;
    listener_ = std::move(*opened);
    grpc::ServerBuilder builder;
    listener_->feed(builder, std::nullopt);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    listener_->start();
  }
  void TearDown() override {
    if (server_ != nullptr) {
      server_->Shutdown(std::chrono::system_clock::now() + 100ms);
      listener_->stop();
    }
    for (const int socket : sockets_) {
      close(socket);
    }
  }

  int connect() {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(listener_->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    sockets_.push_back(socket);
    return socket;
  }

  /// Returns whether the server closes the connection within 5 s.
  static bool is_closed(int socket) {
    std::array<char, 4096> bytes{};
    for (pollfd ready{socket, POLLIN, 0}; poll(&ready, 1, 5000) > 0;) {
      if (recv(socket, bytes.data(), bytes.size(), 0) <= 0) {
        return true;
      }
    }
    return false;
  }

  /// Returns whether the server answers a call.
  [[nodiscard]] bool answers() const {
    const auto channel =
        grpc::CreateChannel(fmt::format("127.0.0.1:{}", listener_->port()), grpc::InsecureChannelCredentials());
    return channel->WaitForConnected(std::chrono::system_clock::now() + 5s);
  }

  grpc::CallbackGenericService service_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<int> sockets_;
};

TEST_F(ListenerTest, ClosesAConnectionThatMakesNoCall) {
  serve({.silence = 50ms});
  EXPECT_TRUE(is_closed(connect()));
}

TEST_F(ListenerTest, ClosesAConnectionWithAHeaderOfAnySize) {
  serve({});
  const int socket = connect();
  std::string bomb = kPreface + kSettings + frame(kHeaders, 4096);
  for (int i = 0; i < 100; ++i) {
    bomb += frame(kContinuation, 4096);
  }
  send(socket, bomb.data(), bomb.size(), MSG_NOSIGNAL);
  EXPECT_TRUE(is_closed(socket));
}

TEST_F(ListenerTest, ClosesAConnectionWhoseServerIsGone) {
  serve({});
  const int socket = connect();
  const std::string begin = kPreface + kSettings;
  send(socket, begin.data(), begin.size(), MSG_NOSIGNAL);
  pollfd answered{socket, POLLIN, 0};
  ASSERT_EQ(poll(&answered, 1, 5000), 1);

  server_->Shutdown(std::chrono::system_clock::now() + 100ms);

  EXPECT_TRUE(is_closed(socket));
}

TEST_F(ListenerTest, ReplacesTheOldestConnectionThatMadeNoCall) {
  serve({.connections = 2});
  const int first = connect();
  const int second = connect();
  connect();
  EXPECT_TRUE(is_closed(first));
  EXPECT_TRUE(answers());
  EXPECT_TRUE(is_closed(second));
}

// gRPC's own accept loop never accepts a connection again after this.
TEST_F(ListenerTest, ServesDuringAndAfterAFloodThatLeavesNoFile) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{200, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  serve({.files_kept = 8});
  // The sockets of this end use files of the same process, so that it really has none left at the end.
  std::vector<int> taken;
  for (int i = 0; i < 40; ++i) {
    connect();
  }
  for (int file = dup(0); file >= 0; file = dup(0)) {
    taken.push_back(file);
  }
  EXPECT_EQ(errno, EMFILE);
  close(taken.back());
  taken.pop_back();
  connect();  // Accepting it fails.
  std::this_thread::sleep_for(100ms);
  for (const int file : taken) {
    close(file);
  }
  EXPECT_TRUE(answers());
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(ListenerTest, ServesProcessesOfItsUserOverALocalSocket) {
  serve({});
  const std::string address = fmt::format("127.0.0.1:{}", listener_->port());
  EXPECT_EQ(find_local_socket(address), "unix-abstract:poprun-emu/127.0.0.1/" + std::to_string(listener_->port()));
  EXPECT_EQ(find_local_socket(fmt::format("localhost:{}", listener_->port())), find_local_socket(address));
  EXPECT_EQ(find_local_socket(fmt::format("[::1]:{}", listener_->port())), std::nullopt);

  const auto channel = open_channel(address, std::nullopt, {});
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 5s);
  grpc::ByteBuffer answer;
  std::promise<grpc::Status> done;
  const grpc::Slice text("question");
  const grpc::ByteBuffer question(&text, 1);
  stub.UnaryCall(&context, "/no/method", {}, &question, &answer,
                 [&](const grpc::Status& status) { done.set_value(status); });
  EXPECT_EQ(done.get_future().get().error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(context.peer(), StartsWith("unix-abstract:"));

  server_->Shutdown(std::chrono::system_clock::now() + 100ms);
  listener_->stop();
  EXPECT_EQ(find_local_socket(address), std::nullopt);
}

TEST_F(ListenerTest, ServesOtherUsersOverItsPortOnly) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can become another user";
  }
  serve({});
  const std::string address = fmt::format("127.0.0.1:{}", listener_->port());
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = local_socket_name("127.0.0.1", static_cast<std::uint16_t>(listener_->port()));
  std::ranges::copy(text, name.sun_path + 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockets_.push_back(socket);

  constexpr uid_t kNobody = 65534;
  ASSERT_EQ(syscall(SYS_setresuid, -1, kNobody, -1), 0);  // The system call changes only this thread.
  const auto found = find_local_socket(address);
  const int connected = ::connect(socket, reinterpret_cast<const sockaddr*>(&name), size);
  ASSERT_EQ(syscall(SYS_setresuid, -1, 0, -1), 0);

  EXPECT_EQ(found, std::nullopt);
  EXPECT_EQ(connected, 0);
  EXPECT_TRUE(is_closed(socket));
  EXPECT_TRUE(find_local_socket(address));
  EXPECT_TRUE(answers());
}

TEST_F(ListenerTest, OpensOnePortOnAllAddressesOfAHost) {
  for (const char* host : {"127.0.0.1", "localhost", "0.0.0.0", "[::]", "::1"}) {
    const auto opened = Listener::open(host, 0);
    ASSERT_TRUE(opened) << host << ": " << opened.error().message;
    const auto again = Listener::open(host, static_cast<std::uint16_t>((*opened)->port()));
    ASSERT_FALSE(again) << host;
    EXPECT_EQ(again.error().code, ErrorCode::kHostResources);
    EXPECT_THAT(again.error().message, HasSubstr(fmt::format("port {} on {} is in use", (*opened)->port(), host)));
  }
  const auto foreign = Listener::open("192.0.2.1", 0);
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().code, ErrorCode::kUsage);
}

}  // namespace
}  // namespace poprun
