#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/local/rendezvous.h"
#include "collectives/patterns/shares.h"
#include "replica/ports/communicator.h"

namespace poprun::collectives {

/// A buffer of this replica or a part of one, with the place at which peers find it.
struct Piece {
  ElementType type = ElementType::kF32;
  std::span<std::byte> bytes;
  Place place;              ///< Place of its first byte; the owner is -1 if peers cannot read it.
  Slice whole = {};         ///< Its bytes within the whole vector; set by Pieces.
  std::uint32_t owner = 0;  ///< Buffer::owner.

  [[nodiscard]] std::size_t count() const { return bytes.size() / size_of(type); }
};

/// Several buffers as one vector of bytes. Wide elements come first, so that a cut at a cache line splits no element.
class Pieces {
 public:
  Pieces() = default;
  explicit Pieces(std::vector<Piece> pieces);

  [[nodiscard]] std::size_t size() const { return size_; }  ///< In bytes.
  [[nodiscard]] std::size_t count() const;                  ///< In elements.

  /// Returns the pieces of these bytes, in order and without gaps. Requires: the bytes exist and are whole elements.
  [[nodiscard]] std::vector<Piece> parts(Slice bytes) const;

  /// Merges neighbouring pieces of the same element type, without their bytes and places, and returns the result.
  [[nodiscard]] std::vector<Piece> types() const;

  /// Returns whether peers can find all of these bytes.
  [[nodiscard]] bool placed(Slice bytes) const;

  /// to = bytes [begin, begin + to.size()). Requires: the bytes exist.
  void copy_out(std::size_t begin, std::span<std::byte> to) const;

  /// Bytes [begin, begin + from.size()) = from. Requires: the bytes exist.
  void copy_in(std::size_t begin, std::span<const std::byte> from) const;

 private:
  std::vector<Piece> pieces_;
  std::size_t size_ = 0;
};

/// targets[t][i] = the reduction over r of sources[r][i], for i < count elements of `type`, for all t. Combines along
/// the canonical tree over r (patterns/canonical_tree.h). Floats are combined in float32. kMean divides once, at the
/// end, by the number of sources. Halves are widened to float32, and the result is rounded last. Integers wrap around.
/// kMax of two values, one of which is NaN, is the right-hand value. A NaN that results from two or more sources is
/// always the quiet NaN without sign or payload.
///
/// Requires: each target is one of the sources or overlaps none of them; there is at least one source; elements are
/// aligned to their size; the reduction is not kMean of kI32. Determinism: the same bits on every x86-64 processor,
/// regardless of its vector width. Cost: reads each source once and writes each target once, block by block in the
/// cache.
void tree_reduce(Reduction reduction, ElementType type, std::span<const std::byte* const> sources,
                 std::span<std::byte* const> targets, std::size_t count);

// The same reduction in two steps, for subtrees of sources that are in different places.

/// Bytes per element of a sum: floats of any width are summed in float32, integers in int32.
inline constexpr std::size_t kSumBytes = 4;

/// sum = the reduction of the sources of one subtree, neither divided nor rounded.
void reduce_subtree(Reduction reduction, ElementType type, std::span<const std::byte* const> sources, std::byte* sum,
                    std::size_t count);

/// target = the reduction over all replicas, computed from the sums of subtrees in tree order. sums[i] is the sum over
/// `replicas[i]` replicas. Requires: the subtrees belong to the canonical tree over all replicas.
void combine_subtrees(Reduction reduction, ElementType type, std::span<const std::byte* const> sums,
                      std::span<const std::size_t> replicas, std::byte* target, std::size_t count);

}  // namespace poprun::collectives
