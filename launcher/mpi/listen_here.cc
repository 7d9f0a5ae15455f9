/// A library that the launcher preloads into mpirun, its daemons and the replicas (LD_PRELOAD). Regardless of its
/// settings, Open MPI listens on all addresses of a host. With this library, a TCP socket that is bound to all
/// addresses is bound to a single one instead:
///
///     POPRUN_EMU_LISTEN=loopback        127.0.0.1 or ::1, for a job on one host
///     POPRUN_EMU_LISTEN=10.1.0.0/16     this host's address in that network (--host-subnet); for IPv6, ::1
///
/// If the variable is not set, nothing changes. If the host has no address in the network, IPv4 sockets do not change.
/// The library must not depend on the C++ runtime library, which mpirun, a C program, does not load.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace {

/// Returns this host's address in the network `text`, such as 10.1.0.0/16, or 0.
in_addr_t address_in(const char* text) {
  char network[INET_ADDRSTRLEN] = {};
  const char* const slash = std::strchr(text, '/');
  if (slash == nullptr || static_cast<std::size_t>(slash - text) >= sizeof network) {
    return 0;
  }
  std::memcpy(network, text, static_cast<std::size_t>(slash - text));
  in_addr wanted{};
  const long bits = std::strtol(slash + 1, nullptr, 10);
  if (inet_pton(AF_INET, network, &wanted) != 1 || bits < 1 || bits > 32) {
    return 0;
  }
  const in_addr_t mask = htonl(~std::uint32_t{0} << static_cast<unsigned>(32 - bits));
  in_addr_t found = 0;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) == 0) {
    for (const ifaddrs* at = all; at != nullptr && found == 0; at = at->ifa_next) {
      if (at->ifa_addr != nullptr && at->ifa_addr->sa_family == AF_INET) {
        const in_addr_t own = reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr.s_addr;  // NOLINT
        found = (own & mask) == (wanted.s_addr & mask) ? own : 0;
      }
    }
    freeifaddrs(all);
  }
  return found;
}

bool is_stream(int socket) {
  int type = 0;
  socklen_t size = sizeof type;
  return getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

}  // namespace

extern "C" int bind(int socket, const sockaddr* address, socklen_t size) noexcept {
  using Bind = int (*)(int, const sockaddr*, socklen_t);
  const auto real = reinterpret_cast<Bind>(dlsym(RTLD_NEXT, "bind"));  // NOLINT: dlsym's contract.
  const char* const where = std::getenv("POPRUN_EMU_LISTEN");
  if (where == nullptr || address == nullptr || size > sizeof(sockaddr_storage) || !is_stream(socket)) {
    return real(socket, address, size);
  }
  sockaddr_storage own{};
  std::memcpy(&own, address, size);
  if (own.ss_family == AF_INET && size >= sizeof(sockaddr_in)) {
    auto* const v4 = reinterpret_cast<sockaddr_in*>(&own);  // NOLINT: type given by ss_family.
    if (v4->sin_addr.s_addr == htonl(INADDR_ANY)) {
      const in_addr_t one = std::strcmp(where, "loopback") == 0 ? htonl(INADDR_LOOPBACK) : address_in(where);
      v4->sin_addr.s_addr = one != 0 ? one : v4->sin_addr.s_addr;
    }
  } else if (own.ss_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(&own);  // NOLINT: type given by ss_family.
    if (IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr)) {
      v6->sin6_addr = in6addr_loopback;
    }
  }
  return real(socket, reinterpret_cast<const sockaddr*>(&own), size);  // NOLINT: as sockets require.
}
