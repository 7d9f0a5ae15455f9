#pragma once

#include <cstdint>

#include "collectives/session/session.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// Errors
///   kHostResources  the disk of `place` has no room for the session of so many instances, which
///                   die of it one by one.
Status check_room_for_mpi_session(const collectives::SessionPlace& place, std::uint32_t instances);

}  // namespace poprun::launcher
