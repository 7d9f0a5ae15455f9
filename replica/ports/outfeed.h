#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "replica/base/error.h"

namespace poprun {

/// Where a replica's outputs go, batch by batch. Belongs to one thread.
class Outfeed {
 public:
  Outfeed() = default;
  Outfeed(const Outfeed&) = delete;
  Outfeed& operator=(const Outfeed&) = delete;
  virtual ~Outfeed() = default;

  /// What came of batch `batch` of the stream "test": one row for each of its samples. `type` is
  /// the element's ("f32"), `shape` [micro-batch, ...], `data` row-major little-endian. Waits while
  /// the host takes no more, so that little is ever kept here.
  ///
  /// Errors
  ///   kInfrastructure  nobody takes outputs any more.
  virtual Status push(std::uint64_t batch, std::string_view type,
                      std::span<const std::int64_t> shape, std::span<const std::byte> data) = 0;
};

}  // namespace poprun
