#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "collectives/local/rendezvous.h"
#include "collectives/patterns/slices.h"
#include "replica/ports/communicator.h"

namespace poprun::collectives {

/// A buffer of this replica, or a part of one, and where peers find theirs.
struct Piece {
  ElementType type = ElementType::kF32;
  std::span<std::byte> bytes;
  Place place;       ///< Where its first byte is; owner -1 where peers cannot read it.
  Slice whole = {};  ///< The bytes of the whole that it is; set by Pieces.

  [[nodiscard]] std::size_t count() const { return bytes.size() / size_of(type); }
};

/// Several buffers as one vector of bytes, those of wide elements before those of narrow ones, so
/// that cuts at lines cut no element.
class Pieces {
 public:
  Pieces() = default;
  explicit Pieces(std::vector<Piece> pieces);

  [[nodiscard]] std::size_t size() const { return size_; }  ///< In bytes.
  [[nodiscard]] std::size_t count() const;                  ///< In elements.

  /// What lies in these bytes, in order and without gaps. Requires: they exist; no element is cut.
  [[nodiscard]] std::vector<Piece> parts(Slice bytes) const;

  /// Bytes of one type each, the fewest there are.
  [[nodiscard]] std::vector<Piece> types() const;

  /// True where peers find every one of these bytes.
  [[nodiscard]] bool placed(Slice bytes) const;

  /// to = bytes [begin, begin + to.size()). Requires: they exist.
  void copy_out(std::size_t begin, std::span<std::byte> to) const;

  /// Bytes [begin, begin + from.size()) = from. Requires: they exist.
  void copy_in(std::size_t begin, std::span<const std::byte> from) const;

 private:
  std::vector<Piece> pieces_;
  std::size_t size_ = 0;
};

}  // namespace poprun::collectives
