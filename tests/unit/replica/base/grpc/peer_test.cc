#include "replica/base/grpc/peer.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace poprun::peer_test {
namespace {

class Peer : public ::testing::Test {
 protected:
  ~Peer() override {
    for (const int socket : {listening_, client_, accepted_}) {
      close(socket);
    }
  }

  /// Connects two sockets of this process over loopback.
  void connect_to(int family) {
    listening_ = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    client_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in6 any{};  // Of IPv6; it includes IPv4.
    any.sin6_family = AF_INET6;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool is_v6 = family == AF_INET6;
    ASSERT_EQ(bind(listening_, is_v6 ? reinterpret_cast<sockaddr*>(&any) : reinterpret_cast<sockaddr*>(&address),
                   is_v6 ? sizeof(any) : sizeof(address)),
              0);
    ASSERT_EQ(listen(listening_, 1), 0);
    socklen_t size = sizeof(any);
    ASSERT_EQ(getsockname(listening_, reinterpret_cast<sockaddr*>(&any), &size), 0);
    address.sin_port = any.sin6_port;  // At the same place in both.
    ASSERT_EQ(connect(client_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    accepted_ = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
    ASSERT_GE(accepted_, 0);
  }

  int listening_ = -1;
  int client_ = -1;
  int accepted_ = -1;
};

TEST_F(Peer, RecognisesConnectionsOfTheSameUser) {
  connect_to(AF_INET);
  EXPECT_TRUE(is_own_connection(accepted_));
  EXPECT_FALSE(is_own_connection(listening_)) << "it is not a connection";
}

TEST_F(Peer, RecognisesThemOnASocketForBothProtocols) {
  connect_to(AF_INET6);
  EXPECT_TRUE(is_own_connection(accepted_));
}

TEST_F(Peer, DistrustsOtherUsers) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can become another user";
  }
  // The socket of the client belongs to the user that created it.
  ASSERT_EQ(seteuid(12'345), 0);
  connect_to(AF_INET);
  EXPECT_TRUE(is_own_connection(accepted_));
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_FALSE(is_own_connection(accepted_));
}

}  // namespace
}  // namespace poprun::peer_test
