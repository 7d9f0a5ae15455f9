#pragma once

namespace poprun {

/// Returns whether the other end of a TCP connection is a socket of the same user on this machine. Returns false if it
/// is not known.
bool is_own_connection(int socket);

}  // namespace poprun
