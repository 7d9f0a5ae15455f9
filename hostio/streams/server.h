#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "hostio/streams/dataset_store.h"
#include "replica/base/error.h"
#include "replica/base/grpc/identity.h"
#include "replica/base/units.h"

namespace poprun::hostio {

struct ServerOptions {
  std::string bind = "127.0.0.1";  ///< Address of this host, or 0.0.0.0 or [::] for all.
  std::uint16_t port = 0;          ///< 0: any free one.
  std::string token;               ///< Empty: calls need none; only for an address of loopback.
  /// Without one: plain text on an address of loopback, that of the token on any other.
  std::optional<TlsIdentity> identity{};
  std::uint64_t batch_bytes_max = std::uint64_t{4}
                                  << 30;  ///< All streams together; one always has room.
};

/// What a server should take for batches where so much memory is free: a quarter, 4 GiB at most.
/// Datasets have half (StoreLimits), and a description or load needs some for a moment.
std::uint64_t batch_bytes_max_of(Bytes free_memory);

/// The data server: proto/host_streams.proto beside gRPC's health service. It keeps no progress
/// (law 6); a stream costs no thread and at most one batch of memory. Calls that wait for a dataset
/// to be read get news of it four times a second.
///
/// Whoever has no token costs no more than bound_clients says. One who has it may send 64 KiB a
/// message, sources of 8 KiB and 2^20 credits a stream; 8,192 streams and `batch_bytes_max` of
/// batches are served at once, more get RESOURCE_EXHAUSTED and come again. StoreLimits bounds the
/// datasets and the descriptions that wait.
///
/// Threads: gRPC's own. Start one at a time in a process.
class Server {
 public:
  /// Listens when it returns. `datasets` outlives the server.
  ///
  /// Errors
  ///   kHostResources  the port is in use; names it and the remedy.
  ///   kUsage          the address is none of this host; or it is reached from other hosts, and
  ///                   there is no token, or one that is easy to guess.
  static Result<std::unique_ptr<Server>> start(const ServerOptions& options,
                                               DatasetStore& datasets);

  Server() = default;
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  virtual ~Server() = default;

  [[nodiscard]] virtual int port() const = 0;

  /// Health says NOT_SERVING, streams are cut after a tenth of a second. Their clients find them
  /// again at the next server. The destructor does the same.
  virtual void stop() = 0;
};

}  // namespace poprun::hostio
