#include <algorithm>
#include <array>
#include <string>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "replica/link/heartbeat.h"

namespace poprun {
namespace {

class Socket {
 public:
  explicit Socket(int file = socket(AF_INET, SOCK_STREAM, 0)) : file_(file) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { close(file_); }

  [[nodiscard]] int file() const { return file_; }

  void bind_to(const char* address) const {
    sockaddr_in name{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
    inet_pton(AF_INET, address, &name.sin_addr);
    ASSERT_EQ(bind(file_, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  }

  void connect_to(const Socket& other) const {
    sockaddr_in name{};
    socklen_t size = sizeof(name);
    getsockname(other.file(), reinterpret_cast<sockaddr*>(&name), &size);
    ASSERT_EQ(connect(file_, reinterpret_cast<sockaddr*>(&name), size), 0);
  }

 private:
  int file_;
};

/// The addresses 127.0.0.2 and 127.0.0.3 stand in for two machines.
TEST(TcpLinks, CountWhatThisProcessSendsToEachMachine) {
  const Socket listener;
  listener.bind_to("127.0.0.3");
  ASSERT_EQ(listen(listener.file(), 2), 0);
  std::array<Socket, 2> clients;
  const auto segments = [] {
    const auto links = tcp_links();
    const auto link = std::ranges::find(links, "127.0.0.3", &proto::TcpLink::peer);
    return link == links.end() || link->local() != "127.0.0.2" ? -1 : static_cast<int>(link->segments());
  };
  EXPECT_EQ(segments(), -1);
  for (const Socket& client : clients) {
    client.bind_to("127.0.0.2");
    client.connect_to(listener);
  }
  EXPECT_EQ(segments(), 0);
  for (const Socket& client : clients) {
    ASSERT_EQ(write(client.file(), "x", 1), 1);
  }
  EXPECT_EQ(segments(), 2);
}

TEST(TcpLinks, LeaveOutWhatStaysOnOneMachine) {
  const Socket listener;
  listener.bind_to("127.0.0.4");
  ASSERT_EQ(listen(listener.file(), 1), 0);
  const Socket client;
  client.bind_to("127.0.0.4");
  client.connect_to(listener);
  for (const proto::TcpLink& link : tcp_links()) {
    EXPECT_NE(link.local(), "127.0.0.4");
  }
}

}  // namespace
}  // namespace poprun
