#pragma once

#include <string>

#include "launcher/placement/placement.h"

namespace poprun::launcher {

/// The address at which the hosts of `placement` reach this machine: 127.0.0.1 where all are local,
/// otherwise that in --host-subnet, or of the interface towards the first host elsewhere that has
/// an address, or the only one that is not loopback, or this machine's name. Never loopback while
/// hosts are elsewhere.
std::string own_address(const Placement& placement);

/// Where to listen to be reached at `own_address` and at no other: there; or at all addresses where
/// it is a name, which other hosts may resolve differently.
std::string listening_address(const std::string& own_address);

/// This machine's address in the network `subnet` (ADDRESS/BITS) of --host-subnet.
///
/// Errors
///   kUsage  no interface has one; names the addresses there are.
Result<std::string> own_address_in(const std::string& subnet);

}  // namespace poprun::launcher
