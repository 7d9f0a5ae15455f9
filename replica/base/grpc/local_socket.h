#pragma once

#include <cstdint>
#include <optional>
#include <string>

/// The local socket of a gRPC server in plain text, through which processes of the same user on the same host connect
/// faster than through its port. It is a Unix socket in Linux's abstract namespace; like ports, these sockets are
/// separate in each network namespace. Clients derive its name from the server's loopback address. Both sides check
/// that their peer belongs to the same user. Other users connect to the server's port, and so through a relay
/// (listener.h).
namespace poprun {

/// Returns the name of the socket of a server that listens on this loopback address and port.
std::string local_socket_name(const std::string& numeric_address, std::uint16_t port);

/// Returns whether the process at the other end of a Unix socket belongs to our user.
bool is_peer_of_our_user(int socket);

/// Returns gRPC's address of the local socket of the server at `address`, a host and port. Returns nothing if the host
/// is not a loopback address, or if no process of our user listens on that socket at present. Never waits.
std::optional<std::string> find_local_socket(const std::string& address);

}  // namespace poprun
