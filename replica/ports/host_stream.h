#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replica/base/error.h"

namespace poprun {

/// One batch as it came from the host: row-major little-endian bytes a tensor.
struct HostBatch {
  std::uint64_t sequence = 0;
  std::vector<std::string> tensors;
};

/// A replica's side of one host stream: batches in order, without gaps, fetched ahead.
/// `hostio/` implements it over gRPC. Belongs to one thread.
class HostStream {
 public:
  HostStream() = default;
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;
  virtual ~HostStream() = default;

  /// The next batch. Waits for it, through losses of the data server, for as long as the stream
  /// was told to try.
  ///
  /// Errors
  ///   kUnreachable  no server answered in that time; says the address and for how long it tried.
  ///   kData         the server refused: dataset missing or damaged; its message.
  virtual Result<HostBatch> next() = 0;
};

}  // namespace poprun
