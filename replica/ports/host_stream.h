#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replica/base/error.h"

namespace poprun {

/// One batch from the host: each tensor's row-major little-endian bytes.
struct HostBatch {
  std::uint64_t sequence = 0;
  std::vector<std::string> tensors;
};

/// A replica's host stream, which prefetches batches and returns them in order, without gaps. `hostio/` implements it
/// with gRPC. It belongs to one thread.
class HostStream {
 public:
  HostStream() = default;
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;
  virtual ~HostStream() = default;

  /// Returns the next batch. Waits for it, even while the data server is lost, up to the configured time. Errors:
  /// kUnreachable if no server answered in that time (the message names the address and the time); kData, with the
  /// server's message, if the server refused because the dataset is missing or damaged.
  virtual Result<HostBatch> next() = 0;
};

}  // namespace poprun
