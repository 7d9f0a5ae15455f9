#include "replica/base/grpc/local_socket.h"

#include <charconv>
#include <system_error>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/ip/address.hpp>
#include <asio/local/stream_protocol.hpp>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include "replica/base/text.h"

namespace poprun {
namespace {

bool is_listening(const std::string& name) {
  asio::io_context loop;
  asio::local::stream_protocol::socket socket(loop);
  asio::error_code error;
  socket.open({}, error);
  if (!error) {
    socket.non_blocking(true, error);
  }
  if (!error) {
    socket.connect('\0' + name, error);  // Fails, and does not wait, if many connections wait to be accepted.
  }
  return !error && is_peer_of_our_user(socket.native_handle());
}

}  // namespace

std::string local_socket_name(const std::string& numeric_address, std::uint16_t port) {
  return fmt::format("poprun-emu/{}/{}", numeric_address, port);
}

bool is_peer_of_our_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

std::optional<std::string> find_local_socket(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    return std::nullopt;
  }
  std::uint16_t port = 0;
  if (std::from_chars(address.data() + colon + 1, address.data() + address.size(), port).ec != std::errc()) {
    return std::nullopt;
  }
  const std::string host = without_brackets(address.substr(0, colon));
  const std::vector<std::string> hosts =
      host == "localhost" ? std::vector<std::string>{"127.0.0.1", "::1"} : std::vector<std::string>{host};
  for (const std::string& candidate : hosts) {
    asio::error_code error;
    const asio::ip::address parsed = asio::ip::make_address(candidate, error);
    if (error || !parsed.is_loopback()) {
      continue;
    }
    if (const std::string name = local_socket_name(parsed.to_string(), port); is_listening(name)) {
      return "unix-abstract:" + name;
    }
  }
  return std::nullopt;
}

}  // namespace poprun
