#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "replica/base/error.h"

namespace poprun {

/// Destination of a replica's outputs, batch by batch. Belongs to one thread.
class Outfeed {
 public:
  Outfeed() = default;
  Outfeed(const Outfeed&) = delete;
  Outfeed& operator=(const Outfeed&) = delete;
  virtual ~Outfeed() = default;

  /// Sends the outputs of batch `batch` of the stream "test": one row per sample. `type` is the element type ("f32"),
  /// `shape` is [micro-batch, ...], `data` is row-major little-endian. Blocks while the host accepts no more, so that
  /// little is buffered here.
  ///
  /// Errors
  ///   kInfrastructure  the launcher no longer accepts outputs.
  virtual Status push(std::uint64_t batch, std::string_view type, std::span<const std::int64_t> shape,
                      std::span<const std::byte> data) = 0;
};

}  // namespace poprun
