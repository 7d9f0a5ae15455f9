#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "collectives/local/rendezvous.h"
#include "collectives/patterns/slices.h"
#include "replica/ports/communicator.h"

namespace poprun::collectives {

/// A buffer of this replica, or part of one, and where peers find theirs.
struct Piece {
  ElementType type = ElementType::kF32;
  std::span<std::byte> bytes;
  Place place;       ///< Where its first byte is; owner -1 if peers cannot read it.
  Slice whole = {};  ///< Its bytes within the whole vector; set by Pieces.

  [[nodiscard]] std::size_t count() const { return bytes.size() / size_of(type); }
};

/// Several buffers seen as one vector of bytes. Wide elements come before narrow ones, so that
/// cutting at cache lines cuts no element.
class Pieces {
 public:
  Pieces() = default;
  explicit Pieces(std::vector<Piece> pieces);

  [[nodiscard]] std::size_t size() const { return size_; }  ///< In bytes.
  [[nodiscard]] std::size_t count() const;                  ///< In elements.

  /// The pieces that make up these bytes, in order and without gaps. Requires: the bytes exist; no
  /// element is cut.
  [[nodiscard]] std::vector<Piece> parts(Slice bytes) const;

  /// The fewest pieces that have one element type each.
  [[nodiscard]] std::vector<Piece> types() const;

  /// True if peers find every one of these bytes.
  [[nodiscard]] bool placed(Slice bytes) const;

  /// to = bytes [begin, begin + to.size()). Requires: the bytes exist.
  void copy_out(std::size_t begin, std::span<std::byte> to) const;

  /// Bytes [begin, begin + from.size()) = from. Requires: the bytes exist.
  void copy_in(std::size_t begin, std::span<const std::byte> from) const;

 private:
  std::vector<Piece> pieces_;
  std::size_t size_ = 0;
};

}  // namespace poprun::collectives
