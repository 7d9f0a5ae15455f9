#pragma once

#include <optional>
#include <string>
#include <vector>

#include "replica/base/error.h"

/// Network interfaces of this machine, and IPv4 addresses in text form.
namespace poprun::launcher {

std::vector<std::string> own_addresses();

/// Returns the first address of `host`, which is a name or an address. Returns nothing if it does not resolve here.
std::optional<std::string> address_of(const std::string& host);

/// Returns the source address with which the kernel would send to `address`. Nothing is sent.
std::optional<std::string> source_towards(const std::string& address);

/// Checks that this machine reaches itself. Its processes talk to each other through the loopback interface, even at
/// its other addresses. If the interface is down, nothing else reports it: sockets listen, and calls wait forever.
/// Errors: kHostResources if the interface is down. The message gives the command that brings it up.
Status check_loopback();

}  // namespace poprun::launcher
