#include "launcher/placement/addresses.h"

#include <array>
#include <memory>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace poprun::launcher {
namespace {

std::string text_of(const sockaddr* address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text.data(), text.size());
  return text.data();
}

using Interfaces = std::unique_ptr<ifaddrs, void (*)(ifaddrs*)>;

/// Returns the interfaces of this machine, or null if the kernel does not list them.
Interfaces interfaces() {
  ifaddrs* list = nullptr;
  return {getifaddrs(&list) == 0 ? list : nullptr, freeifaddrs};
}

}  // namespace

std::vector<std::string> own_addresses() {
  const Interfaces list = interfaces();
  std::vector<std::string> addresses;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_INET) {
      addresses.push_back(text_of(entry->ifa_addr));
    }
  }
  return addresses;
}

std::optional<std::string> address_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) {
    return std::nullopt;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  return text_of(found->ai_addr);
}

std::optional<std::string> source_towards(const std::string& address) {
  sockaddr_in peer{};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(9);
  const int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in own{};
  socklen_t size = sizeof(own);
  auto* const own_address = reinterpret_cast<sockaddr*>(&own);
  const bool known = descriptor >= 0 && inet_pton(AF_INET, address.c_str(), &peer.sin_addr) == 1 &&
                     connect(descriptor, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)) == 0 &&
                     getsockname(descriptor, own_address, &size) == 0;
  if (descriptor >= 0) {
    close(descriptor);
  }
  return known ? std::optional(text_of(own_address)) : std::nullopt;
}

Status check_loopback() {
  const Interfaces list = interfaces();
  bool is_there = false;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    is_there = is_there || (entry->ifa_flags & IFF_LOOPBACK) != 0;
    if ((entry->ifa_flags & IFF_LOOPBACK) != 0 && (entry->ifa_flags & IFF_UP) != 0) {
      return {};
    }
  }
  return is_there ? fail(ErrorCode::kHostResources,
                         "the loopback interface of this machine is down, but the processes of a job communicate over "
                         "it; bring it up: ip link set lo up")
                  : Status{};
}

}  // namespace poprun::launcher
