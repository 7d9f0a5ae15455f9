#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "replica/base/error.h"
#include "replica/graph/types.h"

namespace poprun {

/// A tensor as the host sees it while a stream operation runs.
struct HostTensor {
  std::string_view name;
  const TensorType& type;
  std::span<std::byte> bytes;
};

/// The tensors that one stream operation transfers.
struct StreamPart {
  std::uint64_t micro_batch = 0;  ///< Counted from the start of the host's function.
  std::span<const HostTensor> tensors;
  /// For streams into the replica, the index of each tensor in the batch. If empty, all tensors, in order.
  std::span<const std::uint32_t> fields = {};
};

/// The host's side of the Program's streams.
class HostIo {
 public:
  HostIo() = default;
  HostIo(const HostIo&) = delete;
  HostIo& operator=(const HostIo&) = delete;
  virtual ~HostIo() = default;

  /// Writes tensors of a stream into the replica.
  virtual Status write(const std::string& stream, const StreamPart& part) = 0;

  /// Reads every tensor of a stream from the replica.
  virtual Status read(const std::string& stream, const StreamPart& part) = 0;
};

}  // namespace poprun
