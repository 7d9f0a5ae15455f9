#pragma once

#include <optional>
#include <string>
#include <vector>

#include "replica/base/error.h"

/// This machine's interfaces, and IPv4 addresses as text.
namespace poprun::launcher {

std::vector<std::string> own_addresses();

/// Returns the first address of `host`, a name or an address; nothing if it does not resolve here.
std::optional<std::string> address_of(const std::string& host);

/// Returns the source address from which the kernel would send to `address`. Sends nothing.
std::optional<std::string> source_towards(const std::string& address);

/// Checks that this machine reaches itself: its processes talk to each other through the loopback interface, even at
/// its other addresses. Without it there is no error message: sockets listen, and calls wait forever. Errors:
/// kHostResources if the interface is down; with the command that brings it up.
Status check_loopback();

}  // namespace poprun::launcher
