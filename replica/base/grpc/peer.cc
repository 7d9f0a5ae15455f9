#include "replica/base/grpc/peer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace poprun {
namespace {

/// Writes an address as sock_diag(7) expects it, and returns its port.
std::uint16_t write_address(const sockaddr_storage& from, __be32 (&to)[4]) {
  if (from.ss_family == AF_INET) {
    sockaddr_in address{};
    std::memcpy(&address, &from, sizeof(address));
    std::memcpy(to, &address.sin_addr, sizeof(address.sin_addr));
    return address.sin_port;
  }
  sockaddr_in6 address{};
  std::memcpy(&address, &from, sizeof(address));
  std::memcpy(to, &address.sin6_addr, sizeof(address.sin6_addr));
  return address.sin6_port;
}

struct Question {
  nlmsghdr head;
  inet_diag_req_v2 request;
};

}  // namespace

bool is_own_connection(int socket) {
  constexpr uid_t kUnknownUser = 65'534;  // The kernel's answer if this namespace has no number for the user.
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_bytes = sizeof(here);
  socklen_t there_bytes = sizeof(there);
  if (geteuid() == kUnknownUser || getsockname(socket, reinterpret_cast<sockaddr*>(&here), &here_bytes) != 0 ||
      getpeername(socket, reinterpret_cast<sockaddr*>(&there), &there_bytes) != 0) {
    return false;
  }
  Question question{};
  question.head.nlmsg_len = sizeof(question);
  question.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.head.nlmsg_flags = NLM_F_REQUEST;
  question.request.sdiag_family = static_cast<std::uint8_t>(here.ss_family);
  question.request.sdiag_protocol = IPPROTO_TCP;
  question.request.id.idiag_sport = write_address(there, question.request.id.idiag_src);
  question.request.id.idiag_dport = write_address(here, question.request.id.idiag_dst);
  std::ranges::fill(question.request.id.idiag_cookie, INET_DIAG_NOCOOKIE);

  const int kernel = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (kernel < 0) {
    return false;
  }
  std::array<char, 4096> bytes{};
  ssize_t count = -1;
  if (send(kernel, &question, sizeof(question), 0) == sizeof(question)) {
    count = recv(kernel, bytes.data(), bytes.size(), MSG_DONTWAIT);  // The kernel has answered before `send` returned.
  }
  close(kernel);
  nlmsghdr head{};
  inet_diag_msg answer{};
  if (count < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(answer)))) {
    return false;
  }
  std::memcpy(&head, bytes.data(), sizeof(head));
  std::memcpy(&answer, bytes.data() + NLMSG_HDRLEN, sizeof(answer));
  return head.nlmsg_type == SOCK_DIAG_BY_FAMILY && answer.idiag_uid == geteuid();
}

}  // namespace poprun
