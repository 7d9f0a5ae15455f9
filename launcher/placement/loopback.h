#pragma once

#include "replica/base/error.h"

namespace poprun::launcher {

/// Checks that this machine reaches itself: its processes talk to each other through the loopback interface, even at
/// its other addresses. Without it there is no error message: sockets listen, and calls wait forever.
///
/// Errors
///   kHostResources  the interface is down; with the command that brings it up.
Status check_loopback();

}  // namespace poprun::launcher
