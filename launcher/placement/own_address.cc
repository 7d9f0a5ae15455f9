#include "launcher/placement/own_address.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/placement/addresses.h"
#include "launcher/placement/hosts.h"

namespace poprun::launcher {
namespace {

bool is_loopback(const std::string& address) {
  return address.starts_with("127.");
}

}  // namespace

Result<std::string> own_address_in(const std::string& subnet) {
  const std::size_t slash = subnet.find('/');
  const int bits = std::stoi(subnet.substr(slash + 1));
  in_addr network{};
  POPRUN_CHECK(inet_pton(AF_INET, subnet.substr(0, slash).c_str(), &network) == 1);
  const std::uint32_t mask = htonl(bits == 0 ? 0 : ~std::uint32_t{0} << (32 - bits));
  std::vector<std::string> had;
  for (const std::string& text : own_addresses()) {
    in_addr address{};
    if (inet_pton(AF_INET, text.c_str(), &address) == 1 &&
        (address.s_addr & mask) == (network.s_addr & mask)) {
      return text;
    }
    had.push_back(text);
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
  for (std::size_t h = 0; h < placement.hosts.size(); ++h) {
    const auto source = source_towards(placement.addresses[h]);
    if (!placement.is_local[h] && source && !is_loopback(*source)) {
      return *source;
    }
  }
  // Only ssh knows the hosts, by its own configuration.
  std::vector<std::string> own = own_addresses();
  std::erase_if(own, is_loopback);
  return own.size() == 1 ? own.front() : machine_name();
}

std::string listening_address(const std::string& own_address) {
  in_addr address{};
  return inet_pton(AF_INET, own_address.c_str(), &address) == 1 ? own_address : "0.0.0.0";
}

}  // namespace poprun::launcher
