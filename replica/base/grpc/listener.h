#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <grpcpp/grpcpp.h>

#include "replica/base/error.h"
#include "replica/base/grpc/identity.h"

/// The port of a gRPC server. gRPC's own accept loop stops for good once the process runs out of file descriptors
/// (CVE-2023-4785), and its parser takes time quadratic in the size of a header. Therefore our thread accepts the
/// connections:
///
///     TLS          --> accept ------------------------> gRPC, which checks the client's certificate first
///     plain text   --> accept --> relay, HeaderGuard --> gRPC, over a pair of sockets
///     local socket --> accept ------------------------> gRPC, for processes of our own user (local_socket.h)
///
/// A relay copies the bytes in both directions, which halves the rate, and knows which connections have made a call.
/// Threads: one.
namespace poprun {

/// Watches the bytes that a client sends over HTTP/2 (RFC 9113) and detects when the headers of one call exceed what a
/// server accepts. It counts bytes on the wire and decodes nothing. Compression never makes headers larger, so no call
/// within the limit is refused.
class HeaderGuard {
 public:
  /// `block_bytes_max` is the limit for one call's headers.
  explicit HeaderGuard(std::size_t block_bytes_max) : block_bytes_max_(block_bytes_max) {}

  /// Inspects the next bytes. Returns false if the connection must be closed.
  bool take(std::span<const std::byte> bytes);

  /// Returns whether the client has made a call.
  [[nodiscard]] bool has_called() const { return calls_ > 0; }

 private:
  void begin_frame();

  std::size_t block_bytes_max_;
  std::size_t skip_ = 24;  ///< Remaining bytes of the connection's preface or of a frame's payload.
  std::size_t head_bytes_ = 0;
  std::uint8_t head_[9] = {};  ///< The first `head_bytes_` bytes of a frame's head.
  std::size_t block_bytes_ = 0;
  std::size_t block_frames_ = 0;
  std::uint64_t calls_ = 0;
};

struct ListenerLimits {
  std::size_t header_bytes = (8 + 1) * 1024;  ///< 8 KiB plus padding.
  std::chrono::milliseconds silence{10'000};  ///< Time within which a connection must make its first call.
  std::size_t connections = 16'384;           ///< Fewer if the process may open fewer files.
  std::size_t files_kept = 64;                ///< File descriptors reserved for the rest of the process.
};

class Listener {
 public:
  using Limits = ListenerLimits;

  /// Opens a port on all addresses of `host`; 0.0.0.0 and [::] mean every address of this machine. Port 0 means any
  /// free port. Errors: kUsage if `host` is not an address of this machine; kHostResources if the port is in use; the
  /// message names the address and the reason, but no remedy.
  static Result<std::unique_ptr<Listener>> open(const std::string& host, std::uint16_t port, const Limits& limits = {});

  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  virtual ~Listener() = default;

  [[nodiscard]] virtual int port() const = 0;

  /// Passes the connections to the server that `builder` builds. Without an identity, they are in plain text. Call this
  /// before the server is built, and `start` afterwards.
  virtual void feed(grpc::ServerBuilder& builder, const std::optional<TlsIdentity>& identity) = 0;
  /// Begins to accept connections. Beyond a limit, a new connection replaces the oldest that has made no call; if all
  /// have, the new one is closed. A connection that makes no call in time is closed, too.
  virtual void start() = 0;

  /// Closes the port. Connections last until the server closes them, but at most 1 s. Call this after the server's
  /// shutdown; the destructor does the same.
  virtual void stop() = 0;
};

}  // namespace poprun
