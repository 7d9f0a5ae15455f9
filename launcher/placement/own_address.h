#pragma once

#include <string>

#include "launcher/placement/placement.h"

namespace poprun::launcher {

/// The address at which the hosts of `placement` reach this machine: 127.0.0.1 where all are local,
/// otherwise that of the interface towards the first host that is not.
std::string own_address(const Placement& placement);

/// Errors
///   kUsage  no interface of this machine has an address in the network `subnet` (ADDRESS/BITS) of
///           --host-subnet; names the addresses it has.
Status check_own_address_in(const std::string& subnet);

}  // namespace poprun::launcher
