#pragma once

#include <cstdint>
#include <optional>
#include <string>

/// A second way to a gRPC server in plain text, for processes of the same user on the same host: a Unix socket in
/// Linux's abstract namespace, which network namespaces separate as they separate ports. Its name follows from the
/// server's loopback address, so that no address has to be passed on. Both sides check that the other one belongs to
/// their user; other users get to the server through its port (listener.h), and through its relay.
namespace poprun {

/// Returns the name of the socket of a server that listens on this loopback address and port.
std::string local_socket_name(const std::string& numeric_address, std::uint16_t port);

/// Returns whether the process at the other end of a Unix socket belongs to our user.
bool is_peer_of_our_user(int socket);

/// Returns gRPC's address of the local socket of the server at `address`, a host and port. Returns nothing if the host
/// is not a loopback address, or if no process of our user listens on that socket at present. Never waits.
std::optional<std::string> find_local_socket(const std::string& address);

}  // namespace poprun
