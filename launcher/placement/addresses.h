#pragma once

#include <optional>
#include <string>
#include <vector>

#include "replica/base/error.h"

/// Functions for the network interfaces of this machine, and for IPv4 addresses in text form.
namespace poprun::launcher {

std::vector<std::string> own_addresses();

/// Returns the first address of `host`, which may be a name or an address. Returns nothing if a name does not resolve.
std::optional<std::string> address_of(const std::string& host);

/// Returns the source address that the kernel would use to send to `address`. Sends nothing.
std::optional<std::string> source_towards(const std::string& address);

/// Checks that this machine can reach itself. Its processes reach each other through the loopback interface, even at
/// its other addresses. If that interface is down, nothing else reports an error: sockets listen, and calls wait
/// forever. Errors: kHostResources if the interface is down. The message gives the command that brings it up.
Status check_loopback();

}  // namespace poprun::launcher
