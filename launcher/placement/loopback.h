#pragma once

#include "replica/base/error.h"

namespace poprun::launcher {

/// Whether this machine reaches itself: what runs on it speaks to each other through its loopback
/// interface, also at its other addresses. Nobody says so: sockets listen, and calls wait.
///
/// Errors
///   kHostResources  the interface is down; with the command that brings it up.
Status check_loopback();

}  // namespace poprun::launcher
