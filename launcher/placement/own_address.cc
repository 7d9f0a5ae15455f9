#include "launcher/placement/own_address.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/placement/hosts.h"

namespace poprun::launcher {
namespace {

std::string text_of(in_addr address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &address, text.data(), text.size());
  return text.data();
}

/// The source address that the kernel would take towards `host`. Sends nothing.
std::optional<std::string> address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), "9", &hints, &found) != 0) {
    return std::nullopt;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  const int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in own{};
  socklen_t size = sizeof(own);
  auto* const own_address = reinterpret_cast<sockaddr*>(&own);
  const bool known = descriptor >= 0 &&
                     connect(descriptor, found->ai_addr, found->ai_addrlen) == 0 &&
                     getsockname(descriptor, own_address, &size) == 0;
  if (descriptor >= 0) {
    close(descriptor);
  }
  return known ? std::optional(text_of(own.sin_addr)) : std::nullopt;
}

/// IPv4 addresses of this machine's interfaces.
std::vector<in_addr> own_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return {};
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<in_addr> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_INET) {
      addresses.push_back(reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr);
    }
  }
  return addresses;
}

}  // namespace

Result<std::string> own_address_in(const std::string& subnet) {
  const std::size_t slash = subnet.find('/');
  const int bits = std::stoi(subnet.substr(slash + 1));
  in_addr network{};
  POPRUN_CHECK(inet_pton(AF_INET, subnet.substr(0, slash).c_str(), &network) == 1);
  const std::uint32_t mask = htonl(bits == 0 ? 0 : ~std::uint32_t{0} << (32 - bits));
  std::vector<std::string> had;
  for (const in_addr& address : own_addresses()) {
    if ((address.s_addr & mask) == (network.s_addr & mask)) {
      return text_of(address);
    }
    had.push_back(text_of(address));
  }
  return fail(ErrorCode::kUsage,
              fmt::format("--host-subnet = {}: {} has no address in it; its addresses: {}", subnet,
                          machine_name(), fmt::join(had, ", ")));
}

std::string own_address(const Placement& placement) {
  if (placement.all_local) {
    return "127.0.0.1";
  }
  if (!placement.address_in_subnet.empty()) {
    return placement.address_in_subnet;
  }
  const auto remote = std::ranges::find_if_not(
      placement.hosts, [](const auto& host) { return is_this_machine(host); });
  return address_towards(*remote).value_or(machine_name());
}

std::string listening_address(const std::string& own_address) {
  in_addr address{};
  return inet_pton(AF_INET, own_address.c_str(), &address) == 1 ? own_address : "0.0.0.0";
}

}  // namespace poprun::launcher
