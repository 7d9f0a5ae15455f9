#include "launcher/placement/own_address.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/placement/hosts.h"

namespace poprun::launcher {
namespace {

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
  std::array<char, INET_ADDRSTRLEN> text{};
  if (!known || inet_ntop(AF_INET, &own.sin_addr, text.data(), text.size()) == nullptr) {
    return std::nullopt;
  }
  return std::string(text.data());
}

}  // namespace

std::string own_address(const Placement& placement) {
  if (placement.all_local) {
    return "127.0.0.1";
  }
  const auto remote = std::ranges::find_if_not(
      placement.hosts, [](const auto& host) { return is_this_machine(host); });
  return address_towards(*remote).value_or(machine_name());
}

}  // namespace poprun::launcher
