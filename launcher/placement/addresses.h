#pragma once

#include <optional>
#include <string>
#include <vector>

/// IPv4 addresses, as text.
namespace poprun::launcher {

/// Returns the addresses of this machine's interfaces.
std::vector<std::string> own_addresses();

/// Returns the first address of `host`, a name or an address; nothing if it does not resolve here.
std::optional<std::string> address_of(const std::string& host);

/// Returns the source address from which the kernel would send to `address`. Sends nothing.
std::optional<std::string> source_towards(const std::string& address);

}  // namespace poprun::launcher
