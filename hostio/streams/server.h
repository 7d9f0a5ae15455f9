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
  std::string bind = "127.0.0.1";  ///< An address of this host, or 0.0.0.0 or [::] for all.
  std::uint16_t port = 0;          ///< 0: any free port.
  std::string token;               ///< Empty if none is required, which only loopback allows.
  /// If unset, the server uses plain text on a loopback address, and the identity derived from the token on any other.
  std::optional<TlsIdentity> identity{};
  std::uint64_t batch_bytes_max = std::uint64_t{4} << 30;  ///< Limit for all streams; one batch is always admitted.
};

/// Returns the memory that a server should use for batches: a quarter of the free memory, at most 4 GiB. Datasets get
/// half of the free memory (StoreLimits), and a description or load needs some temporarily.
std::uint64_t batch_bytes_max_of(Bytes free_memory);

/// The data server: implements proto/host_streams.proto and gRPC's health service. It keeps no record of a job's
/// progress (law 6). A stream costs no thread and at most one batch of memory. Calls that wait for a dataset to be read
/// get progress messages four times per second.
///
/// A client without a token can use only the resources that bound_clients allows. A client with the token may send 64
/// KiB per message, sources of 8 KiB and 2^20 credits per stream. The server serves 8,192 streams and `batch_bytes_max`
/// of batches at the same time; calls beyond that get RESOURCE_EXHAUSTED and are retried. StoreLimits bounds the
/// datasets and the descriptions that wait. Threads: gRPC's own. Start only one server at a time in a process.
class Server {
 public:
  /// Starts a server, which is listening when the call returns. `datasets` must outlive the server. Errors:
  /// kHostResources if the port is in use; the message names it and the remedy. kUsage if `bind` is not an address of
  /// this host, or if other hosts can reach it and there is no token or the token is easy to guess.
  static Result<std::unique_ptr<Server>> start(const ServerOptions& options, DatasetStore& datasets);

  Server() = default;
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  virtual ~Server() = default;

  [[nodiscard]] virtual int port() const = 0;

  /// Sets the health service to NOT_SERVING, and ends all streams after a tenth of a second. Their clients then
  /// connect to the server that replaces this one. The destructor does the same.
  virtual void stop() = 0;
};

/// Asks the server that was started on this host with these options whether it is serving (gRPC's health service).
/// Takes at most 5 s. Errors: kUnreachable if it does not answer, or is stopping; those of Server::start for the
/// address and the token.
Status probe(const ServerOptions& options);

}  // namespace poprun::hostio
