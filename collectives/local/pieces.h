#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "collectives/patterns/slices.h"
#include "replica/ports/communicator.h"

namespace poprun::collectives {

/// Neighbouring bytes of one type of elements.
struct Extent {
  ElementType type;
  Slice bytes;

  friend bool operator==(const Extent&, const Extent&) = default;
};

/// Several buffers as one vector of bytes, those of wide elements before those of narrow ones, so
/// that cuts at lines cut no element. For exchanges that copy through memory of another shape.
class Pieces {
 public:
  Pieces() = default;
  explicit Pieces(std::span<const Buffer> buffers);

  [[nodiscard]] std::size_t size() const { return size_; }

  /// What lies in these bytes, in order and without gaps. Requires: they exist; no element is cut.
  [[nodiscard]] std::vector<Extent> extents(Slice bytes) const;

  /// to = bytes [begin, begin + to.size()). Requires: they exist.
  void copy_out(std::size_t begin, std::span<std::byte> to) const;

  /// Bytes [begin, begin + from.size()) = from. Requires: they exist.
  void copy_in(std::size_t begin, std::span<const std::byte> from) const;

 private:
  template <typename Visit>
  void for_each_part(Slice bytes, const Visit& visit) const;

  std::vector<Buffer> pieces_;
  std::size_t size_ = 0;
};

}  // namespace poprun::collectives
