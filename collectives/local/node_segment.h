#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/local/rendezvous.h"
#include "collectives/local/shared_memory.h"
#include "replica/base/error.h"
#include "replica/base/units.h"

namespace poprun::collectives {

/// The memory through which the replicas of one host exchange, as one process sees it.
///
///   control      rendezvous of all replicas
///   mailboxes    two of kMailBytes a replica, for what is small enough to be copied
///   staging      kStagingBytes a replica, for buffers that peers cannot read
///   wire         as many bytes as the maker wants, for what goes to and comes from other hosts
///   region 0..   one a call of Communicator::allocate: the same size for every replica
///
///   region:   | replica 0's bytes .. pad | replica 1's bytes .. pad | ...         stride = whole
///   pages
///
/// A process has one segment for all its replicas. Every process maps all of it; addresses differ
/// between processes, regions and offsets do not.
///
/// Threads: `add_region` while no other thread uses the segment; the rest from any thread.
class NodeSegment {
 public:
  static constexpr std::size_t kStagingBytes = std::size_t{1} << 20U;
  static constexpr std::size_t kMailBytes = std::size_t{16} << 10U;

  enum class Peers : std::uint8_t { kThreads, kProcesses };

  /// A new segment for `replicas` replicas.
  static Result<std::unique_ptr<NodeSegment>> create(Peers peers, std::size_t replicas,
                                                     Bytes wire = Bytes{0});

  /// The segment that another process has created alike, with this nonce.
  static Result<std::unique_ptr<NodeSegment>> open(FileAddress address, std::uint64_t nonce,
                                                   std::size_t replicas, Bytes wire = Bytes{0});

  [[nodiscard]] Peers peers() const { return peers_; }
  [[nodiscard]] std::size_t replicas() const { return replicas_; }

  /// Where other processes find the segment until `close_files`, and the number they find in it.
  [[nodiscard]] FileAddress address() const { return memory_.address(); }
  [[nodiscard]] std::uint64_t nonce() const;

  /// Closes the descriptors of the segment and its regions; the memory stays.
  void close_files();

  /// Memory of Rendezvous::Options.
  [[nodiscard]] std::byte* control() const;

  /// The mailbox of `replica` for call number `sequence`, that of every second call.
  [[nodiscard]] std::byte* mail(std::size_t replica, std::uint64_t sequence) const;

  [[nodiscard]] std::byte* staging(std::size_t replica) const;

  /// Page-aligned.
  [[nodiscard]] std::byte* wire() const { return staging(replicas_); }

  /// Bytes of a region that gives each replica `size`; nothing where they are more than addresses.
  [[nodiscard]] Result<Bytes> region_size(Bytes size) const;

  /// Takes memory of `region_size(size)` as the next region.
  void add_region(SharedMemory memory, Bytes size);

  [[nodiscard]] std::size_t region_count() const { return regions_.size(); }

  /// The memory of `replica` at a place. Requires: the place is in a region.
  [[nodiscard]] std::byte* at(Place place, std::size_t replica) const;

  /// Where `replica`'s bytes lie, or owner -1 where they are not wholly in its part of a region.
  [[nodiscard]] Place find(std::size_t replica, std::span<const std::byte> bytes) const;

 private:
  struct Region {
    SharedMemory memory;
    std::size_t size;    ///< Of each replica.
    std::size_t stride;  ///< Between replicas.
  };

  NodeSegment(Peers peers, std::size_t replicas, SharedMemory memory);

  Peers peers_;
  std::size_t replicas_;
  SharedMemory memory_;
  std::vector<Region> regions_;
};

}  // namespace poprun::collectives
