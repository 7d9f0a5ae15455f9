#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "replica/base/error.h"
#include "replica/base/ids.h"
#include "replica/base/units.h"

namespace poprun {

enum class Reduction : std::uint8_t { kSum, kMean, kMax };

/// What the elements of an exchanged buffer are.
enum class ElementType : std::uint8_t {
  kF32,  ///< IEEE 754 binary32.
  kF16,  ///< IEEE 754 binary16 (replica/base/half.h).
  kI32,  ///< Two's complement, sums wrap around.
};

/// Bytes of one element.
constexpr std::size_t size_of(ElementType type) {
  return type == ElementType::kF16 ? 2 : 4;
}

/// Elements in memory, aligned to their size.
/// Requires: `bytes` are a whole number of elements.
struct Buffer {
  ElementType type = ElementType::kF32;
  std::span<std::byte> bytes;

  /// Of floats.
  static Buffer of(std::span<float> floats) {
    return {ElementType::kF32, std::as_writable_bytes(floats)};
  }
};

/// What a replica needs from the other replicas. `collectives/` implements it over threads and over
/// MPI; the engine and its tests know only this file.
///
/// Every call is collective: all replicas make the same calls in the same order with equal sizes.
/// Calls block, without spinning, at most for the deadline the implementation was made with. A
/// communicator belongs to one replica and one thread.
///
/// Sums are bit-identical on every replica, and for every placement of the same replicas on
/// processes and hosts: elementwise in float32 along the canonical tree over the replica index
/// (collectives/patterns/canonical_tree.h). `kMean` divides once, at the end. Elements of kF16 are
/// widened before and the result is rounded once, to nearest even, after everything else. Elements
/// of kI32 have no mean.
///
/// Errors, from any call
///   kInfrastructure   a peer did not arrive before the deadline; names the call, the missing
///                     replicas and the time waited. The communicator is unusable afterwards.
///   kUnreachable      memory for the exchange could not be had; names size and remedy.
///   kBug              replicas made different calls; names who called what. All of them get it.
///                     The communicator is unusable afterwards. Also a mean over kI32, which
///                     harms nothing.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  [[nodiscard]] virtual ReplicaId self() const = 0;
  [[nodiscard]] virtual std::size_t size() const = 0;

  /// `size` bytes of zeroed memory, page-aligned, that peers on this host can read, valid as long
  /// as the communicator. Untouched pages cost nothing. Collectives on buffers inside it exchange
  /// in place; on other buffers they copy.
  ///
  /// Requires: every replica asks for the same size, and passes the same positions to collectives.
  virtual Result<std::span<std::byte>> allocate(Bytes size) = 0;

  /// Every element of every buffer becomes the reduction over all replicas, on every replica. One
  /// exchange for all buffers together; they may differ in type.
  virtual Status all_reduce(Reduction reduction, std::span<const Buffer> buffers) = 0;

  /// `shard` becomes this replica's slice of the reduction of `data`, both of elements of `type`:
  /// bytes [self * shard.size(), (self + 1) * shard.size()).
  /// Requires: data.size() == shard.size() * size(); whole elements.
  virtual Status reduce_scatter(Reduction reduction, ElementType type,
                                std::span<const std::byte> data, std::span<std::byte> shard) = 0;

  /// `all` becomes the concatenation of every replica's `mine`, in replica order.
  /// Requires: all.size() == mine.size() * size().
  virtual Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;

  /// `data` becomes `root`'s data on every replica.
  virtual Status broadcast(std::span<std::byte> data, ReplicaId root) = 0;

  /// Returns once every replica has called it.
  virtual Status barrier() = 0;
};

}  // namespace poprun
