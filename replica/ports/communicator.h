#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/units.h"

namespace poprun {

enum class Reduction : std::uint8_t { kSum, kMean, kMax };

enum class ElementType : std::uint8_t {
  kF32,  ///< IEEE 754 binary32.
  kF16,  ///< IEEE 754 binary16 (replica/base/half.h).
  kI32,  ///< Two's complement; sums wrap around.
};

constexpr std::size_t size_of(ElementType type) {
  return type == ElementType::kF16 ? 2 : 4;
}

/// Elements in memory, aligned to their size. Requires: `bytes` contains a whole number of elements.
struct Buffer {
  ElementType type = ElementType::kF32;
  std::span<std::byte> bytes;
  std::string_view name = {};  ///< For messages. It may be empty, but is the same on all replicas.
  std::uint32_t owner = 0;     ///< In reduce_to_owners: 0 if each replica owns a part, or who owns all (owner_of).

  static Buffer of(std::span<float> floats) { return {ElementType::kF32, std::as_writable_bytes(floats)}; }
};

/// A division of R replicas into groups, as PopART's CommGroup describes it. Each replica is in exactly one group.
struct Group {
  enum class Kind : std::uint8_t {
    kAll,          ///< {0, 1, .. R - 1}
    kConsecutive,  ///< {0, 1, .. size - 1}, {size, .. 2 size - 1}, ..
    kOrthogonal,   ///< {0, m, 2 m, ..}, {1, m + 1, 2 m + 1, ..}, ..; m = R / size is the number of groups
    kHost,         ///< The replicas that share a host's memory.
  };

  Kind kind = Kind::kAll;
  std::size_t size = 0;  ///< Replicas per group, a divisor of R; 0 for kAll and kHost.

  static constexpr Group all() { return {}; }
  static constexpr Group consecutive(std::size_t size) { return {Kind::kConsecutive, size}; }
  static constexpr Group orthogonal(std::size_t size) { return {Kind::kOrthogonal, size}; }
  static constexpr Group host() { return {Kind::kHost, 0}; }

  friend constexpr bool operator==(Group, Group) = default;
};

/// Memory of which all replicas of a host see one image. A replica writes only the parts that it owns, through
/// `writable`. All other code uses `image`, where a stray write ends the process (SIGSEGV) instead of changing what the
/// other replicas see.
struct CommonMemory {
  std::span<const std::byte> image;
  std::span<std::byte> writable;
};

/// Returns which of `replicas` replicas of a host writes the tensors with this Tensor.owner, which is at least 1.
/// Owners are numbered by decreasing size of their tensors, and dealt to the replicas back and forth, so that all have
/// about the same to do.
constexpr std::size_t owner_of(std::uint32_t owner, std::size_t replicas) {
  const std::size_t place = (owner - 1) % (2 * replicas);
  return place < replicas ? place : 2 * replicas - 1 - place;
}

/// Elements [begin, begin + count) of a tensor.
struct OwnedPart {
  std::size_t begin = 0;
  std::size_t count = 0;
};

/// Returns the part of `elements` elements that replica `self` of `replicas` owns. Parts begin at multiples of 64, so
/// that they are aligned for kernels in every element type; the parts of small tensors may be empty.
/// With an owner, this replica has all elements or none.
constexpr OwnedPart owned_part(std::size_t elements, std::size_t replicas, std::size_t self, std::uint32_t owner = 0) {
  if (owner > 0) {
    return {0, owner_of(owner, replicas) == self ? elements : 0};
  }
  constexpr std::size_t kUnit = 64;
  const std::size_t units = (elements + kUnit - 1) / kUnit;
  const auto edge = [&](std::size_t index) {
    const std::size_t element = units * index / replicas * kUnit;
    return element < elements ? element : elements;
  };
  return {edge(self), edge(self + 1) - edge(self)};
}

/// Communication with the other replicas. `collectives/` implements it over threads and over MPI; the engine and its
/// tests use only this interface. Every call is collective: all replicas make the same calls in the same order, with
/// the same sizes and names. Names identify the call in messages and distinguish calls of the same size. Calls block
/// without spinning, at most until the deadline set at creation. A communicator belongs to one replica and one thread.
///
/// Sums are bit-identical on every replica and for every placement of the replicas on processes and hosts: they are
/// taken elementwise, in float32, along the canonical tree over the replica index
/// (collectives/patterns/canonical_tree.h). `kMean` divides once, at the end. kF16 elements are widened first, and the
/// result is rounded once, to nearest even, at the very end. Every NaN result has the same bits, whatever the bits of
/// the operands' NaNs. kI32 elements have no mean.
///
/// Errors, from any call
///   kInfrastructure   a peer did not arrive before the deadline. The message names the call, the missing replicas
///                     (they are also facts) and the time waited. The communicator is unusable afterwards.
///   kHostResources    memory for the exchange could not be allocated. The message names the size and the remedy.
///   kUnreachable      a peer's memory could not be opened. The message says why.
///   kBug              replicas made different calls. The message says which replica made which call. All replicas get
///                     this error, and the communicator is unusable afterwards. A mean over kI32 also returns this
///                     error, but the communicator then remains usable.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  /// Returns this replica's index, which is below `size()`: its number in the job or its index in the group. Error
  /// messages always use numbers in the job.
  [[nodiscard]] virtual ReplicaId self() const = 0;
  [[nodiscard]] virtual std::size_t size() const = 0;

  /// Allocates `size` bytes of zeroed, page-aligned memory that peers on this host can read, valid for the lifetime of
  /// the communicator. Untouched pages cost nothing. Collectives exchange data in this memory in place; they copy other
  /// buffers. Requires: every replica asks for the same size and passes the same offsets to collectives.
  virtual Result<std::span<std::byte>> allocate(Bytes size) = 0;

  /// Allocates `size` bytes of zeroed memory of which all replicas see one image, valid for the lifetime of the world
  /// of replicas. Requires: every replica asks for the same size. Errors: kUsage unless all replicas are on one host,
  /// as those of Group::host() are.
  virtual Result<CommonMemory> allocate_common(Bytes size) = 0;

  /// Replaces every element of every buffer with its reduction over all replicas, on every replica, in one exchange.
  /// Buffers may differ in type. Requires: buffers do not overlap.
  virtual Status all_reduce(Reduction reduction, std::span<const Buffer> buffers) = 0;

  /// Reduces as all_reduce does, but writes only the elements that this replica owns (owned_part) of each buffer. The
  /// buffers' other elements are undefined afterwards. Cost: on one host, 1/R of the writes of an all_reduce.
  virtual Status reduce_to_owners(Reduction reduction, std::span<const Buffer> buffers) = 0;

  /// Begins an all_reduce and returns. The exchange proceeds while this replica does other work, including other calls
  /// of the communicator. Requires: the buffers and their names are not touched until `await_all_reduces` returns.
  /// Pending all_reduces run one after another.
  virtual Status begin_all_reduce(Reduction reduction, std::span<const Buffer> buffers) = 0;

  /// Waits until all pending all_reduces are done. Returns the errors of the all_reduces, too.
  virtual Status await_all_reduces() = 0;

  /// Reduces `data` and writes this replica's slice of the result, bytes [self * shard.size(), (self + 1) *
  /// shard.size()), to `shard`. Both have elements of `type`. Requires: data.size() == shard.size() * size(); `shard`
  /// has whole elements; `shard` is exactly that slice of `data` or lies outside `data`, because peers read the rest.
  virtual Status reduce_scatter(Reduction reduction, ElementType type, std::span<const std::byte> data,
                                std::span<std::byte> shard, std::string_view name = {}) = 0;

  /// Writes the concatenation of every replica's `mine` to `all`, in replica order.
  /// Requires: all.size() == mine.size() * size(); `mine` is exactly its slice of `all` or lies outside it.
  virtual Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::string_view name = {}) = 0;

  /// Replaces `data` with the data of `root` on every replica.
  virtual Status broadcast(std::span<std::byte> data, ReplicaId root, std::string_view name = {}) = 0;

  /// Returns when every replica has called it.
  virtual Status barrier() = 0;

  /// Creates a communicator over this replica's group, with the same contract. It is a separate channel that shares
  /// only memory with this one: groups run concurrently, and a failure of one does not affect the others. A replica may
  /// use several communicators in turn, in the same order on all replicas, or each from its own thread. The group also
  /// exchanges buffers of this communicator in place.
  ///
  /// Collective over all replicas of this communicator. The call costs a few microseconds, and 1 MiB per replica for
  /// the lifetime of the world of replicas, which the group must not outlive. Errors: kUsage if `group.size` does not
  /// divide the number of replicas; this communicator then remains usable.
  virtual Result<std::unique_ptr<Communicator>> group(Group group) = 0;

  /// Returns the last eight calls of this replica on this communicator, its groups and its parent, for failure reports:
  /// oldest first, one line each.
  [[nodiscard]] virtual std::vector<std::string> recent_calls() const = 0;
};

}  // namespace poprun
