#pragma once

#include <cstddef>
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

/// The host's side of the Program's streams.
class HostIo {
 public:
  HostIo() = default;
  HostIo(const HostIo&) = delete;
  HostIo& operator=(const HostIo&) = delete;
  virtual ~HostIo() = default;

  /// Writes every tensor of a stream into the replica.
  virtual Status write(const std::string& stream, std::span<const HostTensor> tensors) = 0;

  /// Reads every tensor of a stream from the replica.
  virtual Status read(const std::string& stream, std::span<const HostTensor> tensors) = 0;
};

}  // namespace poprun
