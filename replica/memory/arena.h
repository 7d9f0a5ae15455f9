#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "replica/base/units.h"

namespace poprun {

/// One IPU's In-Processor Memory, exactly as many bytes as the device has, or its Streaming Memory,
/// as many as the plan uses. Only touched pages cost this machine anything. The provider of the
/// bytes (of In-Processor Memory a Communicator, so that peers can read them) keeps them alive.
class Arena {
 public:
  explicit Arena(std::span<std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] Bytes capacity() const { return Bytes{static_cast<std::int64_t>(bytes_.size())}; }

  /// The bytes [offset, offset + size). Requires: they lie inside the memory.
  [[nodiscard]] std::span<std::byte> at(Bytes offset, Bytes size) const;

  /// Notes that bytes up to `end` are in use now. Requires: end <= capacity().
  void use(Bytes end);

  /// The largest `end` ever in use.
  [[nodiscard]] Bytes high_water() const { return high_water_; }

  /// Fills bytes with 0xFF, which is NaN in every float format.
  void poison(Bytes offset, Bytes size) const;

 private:
  std::span<std::byte> bytes_;
  Bytes high_water_;
};

}  // namespace poprun
