#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "collectives/local/rendezvous.h"
#include "replica/base/error.h"
#include "replica/base/units.h"
#include "replica/ports/communicator.h"

namespace poprun::collectives {

/// Location of another process's in-memory file on this machine.
struct FileAddress {
  std::int64_t process = -1;     ///< Process id, as seen from the opener's pid namespace.
  std::int64_t descriptor = -1;  ///< File descriptor in that process.
};

/// A mapping of zeroed memory. The destructor unmaps it. The memory is sparse: a page costs nothing until it is
/// touched, so sizes far above the machine's memory are fine, and creation takes microseconds.
///
/// Errors
///   kHostResources  the system refused the mapping or the file; the message names size, reason and remedy.
///   kUnreachable    another process's memory cannot be opened or has an unexpected size.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept { swap(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  static Result<SharedMemory> create_for_threads(Bytes size);

  /// Creates memory that other processes can open while `address()` is valid. It is a memfd and not a file in /dev/shm,
  /// because many containers limit /dev/shm to 64 MiB.
  static Result<SharedMemory> create_for_processes(Bytes size);

  /// Maps the memory that another process created with this size, and keeps its file open until `close_file`.
  static Result<SharedMemory> open(FileAddress address, Bytes size);

  /// Maps the same memory once more, for reading only. Requires: the memory is for processes and its file is open.
  [[nodiscard]] Result<SharedMemory> read_only() const;

  /// Returns the address of this process's descriptor, or an invalid address if it has none.
  [[nodiscard]] FileAddress address() const;

  /// Closes the descriptor. The mapping stays valid, but later calls of `open` fail.
  void close_file();

  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  Status map(Bytes size, int protection, int flags, int file);
  void swap(SharedMemory& other) noexcept;

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int file_ = -1;
};

/// The memory through which the replicas of one host exchange data, as mapped by one process.
///
///   rooms 0..    one per replica: | control | mailboxes | staging | wire |
///   region 0..   one per call of Communicator::allocate: the same size for every replica
///   common 0..   one per call of Communicator::allocate_common: one image for all replicas, mapped twice
///
///   region:   | replica 0's bytes .. pad | replica 1's bytes .. pad | ...   stride: whole pages
///
///   control   rendezvous of all replicas; in the first room
///   mailboxes two of kMailBytes each, for payloads small enough to be copied
///   staging   kStagingBytes, for buffers that peers cannot read
///   wire      for exchange with other hosts, as large as the creator requests; in the first room
///
/// A process has one segment for all its replicas. Every process maps the whole segment. Addresses differ between
/// processes; region numbers and offsets do not. A group of the replicas has its own segment, whose rooms are in a
/// region of the parent segment. The group's members also find buffers in the parent's regions. Threads: any.
class NodeSegment {
 public:
  static constexpr std::size_t kStagingBytes = std::size_t{1} << 20U;
  static constexpr std::size_t kMailBytes = std::size_t{16} << 10U;

  enum class Peers : std::uint8_t { kThreads, kProcesses };

  static Result<std::unique_ptr<NodeSegment>> create(Peers peers, std::size_t replicas, Bytes wire = Bytes{0});

  /// Opens the segment that another process created with the same arguments and this nonce.
  static Result<std::unique_ptr<NodeSegment>> open(FileAddress address, std::uint64_t nonce, std::size_t replicas,
                                                   Bytes wire = Bytes{0});

  [[nodiscard]] Peers peers() const { return peers_; }
  [[nodiscard]] std::size_t replicas() const { return replicas_; }

  /// Address at which other processes can open the segment until `close_files`, and the nonce that identifies it.
  [[nodiscard]] FileAddress address() const { return memory_.address(); }
  [[nodiscard]] std::uint64_t nonce() const;

  /// Closes the descriptors of the segment and its regions. The memory stays mapped.
  void close_files();

  /// Returns the segment of group `members`, whose rooms are the members' parts of `region`. The first call in a
  /// process creates the segment.
  NodeSegment& group(std::size_t region, const std::vector<std::size_t>& members);

  /// Returns the size of one replica's room in a segment of `replicas` replicas. The rooms of its groups are no larger.
  static Bytes room_bytes(std::size_t replicas, Bytes wire);

  /// The memory for Rendezvous::Options.
  [[nodiscard]] std::byte* control() const { return rooms_[0]; }

  /// The mailbox of `replica` for call number `sequence`; every second call uses the same mailbox.
  [[nodiscard]] std::byte* mail(std::size_t replica, std::uint64_t sequence) const;

  [[nodiscard]] std::byte* staging(std::size_t replica) const { return mail(replica, 0) + 2 * kMailBytes; }

  /// The wire area, which is page-aligned.
  [[nodiscard]] std::byte* wire() const { return staging(0) + kStagingBytes; }

  /// Returns the size of a region of `size` bytes per replica. Errors: kHostResources if it exceeds the address space.
  [[nodiscard]] Result<Bytes> region_size(Bytes size) const;

  /// Adds `memory`, of `region_size(size)` bytes, as the next region.
  void add_region(SharedMemory memory, Bytes size);

  [[nodiscard]] std::size_t region_count() const;

  /// Adds `memory` as the next common memory. Requires: its file is open. Errors: those of SharedMemory::read_only.
  Status add_common(SharedMemory memory);

  /// Returns the first `size` bytes of the common memory that was added last.
  [[nodiscard]] CommonMemory newest_common(Bytes size) const;

  /// Returns the memory of `replica` at a place. Requires: the place is in a region.
  [[nodiscard]] std::byte* at(Place place, std::size_t replica) const;

  /// Returns the place of `replica`'s bytes in a region of this segment or of its parents. The place has owner -1 if
  /// the bytes are not entirely in the replica's part of one region.
  [[nodiscard]] Place find(std::size_t replica, std::span<const std::byte> bytes) const;

 private:
  struct Region {
    SharedMemory memory;
    std::size_t size;    ///< Size of each replica's part.
    std::size_t stride;  ///< Distance between replicas' parts.

    [[nodiscard]] std::byte* at(std::size_t replica) const { return memory.data() + replica * stride; }
  };

  struct Common {
    SharedMemory writable;
    SharedMemory image;
  };

  NodeSegment(Peers peers, std::size_t replicas, Bytes wire, SharedMemory memory);
  NodeSegment(const NodeSegment& parent, std::size_t region, std::vector<std::size_t> members);

  Peers peers_;
  std::size_t replicas_;
  SharedMemory memory_;                  ///< The rooms; empty for a group.
  std::vector<std::byte*> rooms_;        ///< One per replica.
  const NodeSegment* parent_ = nullptr;  ///< Segment from which this group was formed; else null.
  std::vector<std::size_t> members_;     ///< The group's members in the parent.

  mutable std::mutex mutex_;  ///< Guards the members below, which all channels use.
  std::vector<Region> regions_;
  std::vector<Common> commons_;
  /// Keyed by the region that contains the group's rooms, and by the group's first member.
  std::map<std::pair<std::size_t, std::size_t>, std::unique_ptr<NodeSegment>> groups_;
};

}  // namespace poprun::collectives
