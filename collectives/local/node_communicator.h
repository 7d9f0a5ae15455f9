#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/local/background.h"
#include "collectives/local/node_segment.h"
#include "collectives/local/rendezvous.h"
#include "collectives/local/tree_reduce.h"
#include "replica/ports/communicator.h"

namespace poprun::collectives {

/// Returns the non-empty buffers of `replica` with the places at which peers find them in shared memory.
std::vector<Piece> find_pieces(const NodeSegment& segment, std::size_t replica, std::span<const Buffer> buffers);

/// Describes an all-reduce of `buffers`; `pieces` is the result of `find_pieces` for them.
Call call_of_all_reduce(Reduction reduction, std::span<const Buffer> buffers, std::span<const Piece> pieces);

/// `Communicator` for replicas that are all on one host, as threads or as processes.
///
/// An all-reduce of allocated buffers works in place. All buffers of a replica form one vector, of which every replica
/// reduces one slice, 1/R of the whole. It reads the other replicas' memory directly and writes the result into this
/// slice of all replicas' vectors.
///
///   meet      all buffers are complete, all replicas make the same call
///   replica r:   | buffers of replica 0 |  ...  | buffers of replica R-1 |     slice r of each,
///                    [r]  \______________________/  [r]                        up the tree, back
///   meet      all slices are written
///
/// Each byte is read once and written once. For small payloads, the meetings take most of the time. Each replica
/// therefore copies its payload into a mailbox before the first meeting, and every replica computes the whole result
/// itself. The second meeting is not needed, because a replica uses two mailboxes in turn: by the time it reuses a
/// mailbox, the call in between has proved that all other replicas have read it.
///
/// Buffers outside allocated memory go through the staging areas in the same way, chunk by chunk. The other collectives
/// read from the peers' memory or from their staging areas.
class NodeCommunicator final : public Communicator {
 public:
  struct Options {
    std::size_t self = 0;            ///< Index in the segment.
    std::size_t process_leader = 0;  ///< Index of the replica that maps new memory for its process.
    std::chrono::milliseconds deadline{0};
    std::vector<std::size_t> numbers{};                    ///< Numbers of the replicas in the segment; empty: 0, 1, ..
    std::string among{};                                   ///< See Rendezvous::Options.
    std::shared_ptr<CallLog> log{};                        ///< This replica's log; null: create one.
    std::function<Status(std::span<const Call>)> agree{};  ///< See Rendezvous::Options.
    LastExcuse last_excuse{};                              ///< See Rendezvous::Options.
  };

  /// `segment` must outlive the communicator.
  NodeCommunicator(NodeSegment& segment, const Options& options);

  [[nodiscard]] ReplicaId self() const override { return static_cast<ReplicaId>(options_.self); }
  [[nodiscard]] std::size_t size() const override { return segment_->replicas(); }

  Result<std::span<std::byte>> allocate(Bytes size) override;
  Result<CommonMemory> allocate_common(Bytes size) override;
  Status all_reduce(Reduction reduction, std::span<const Buffer> buffers) override;
  Status reduce_to_owners(Reduction reduction, std::span<const Buffer> buffers) override;
  Status begin_all_reduce(Reduction reduction, std::span<const Buffer> buffers) override {
    return background_.begin(*this, reduction, buffers);
  }
  Status await_all_reduces() override { return background_.await(); }
  Status reduce_scatter(Reduction reduction, ElementType type, std::span<const std::byte> data,
                        std::span<std::byte> shard, std::string_view name) override;
  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::string_view name) override;
  Status broadcast(std::span<std::byte> data, ReplicaId root, std::string_view name) override;
  Status barrier() override { return rendezvous_.open({.kind = CallKind::kBarrier}); }
  Result<std::unique_ptr<Communicator>> group(Group group) override;
  [[nodiscard]] std::vector<std::string> recent_calls() const override {
    return options_.log->lines(CallLog::Clock::now());
  }

  /// Waits until all replicas have made `call`, then returns the segment of this replica's group, which consists of
  /// `members` of this segment. The new segment has a wire area of `wire` bytes, which must be the same for all groups.
  Result<NodeSegment*> form_group(const Call& call, const std::vector<std::size_t>& members, Bytes wire);

  [[nodiscard]] Options options_among(const std::vector<std::size_t>& members) const;

  [[nodiscard]] Rendezvous& rendezvous() { return rendezvous_; }

  /// The mailbox into which this replica puts its payload for the next call.
  [[nodiscard]] std::byte* next_mail() const { return segment_->mail(options_.self, rendezvous_.sequence() + 1); }

  /// The payload of `replica` in the open call.
  [[nodiscard]] const std::byte* mail_of(std::size_t replica) const {
    return segment_->mail(replica, rendezvous_.sequence());
  }

 private:
  /// Makes new memory of `total` bytes known to all processes: `keep` receives it in each of them, with its file open
  /// if `has_file`. All replicas get the first error.
  template <typename Keep>
  Status share_memory(const Call& call, const Result<Bytes>& total, bool has_file, const Keep& keep);
  Status share_region(const Call& call, Bytes size);

  /// Reduces buffers, of which the `placed` ones are in memory that peers can read. `reduce` reduces those.
  template <typename Reduce>
  Status reduce_buffers(Reduction reduction, const Call& call, std::span<const Piece> pieces, const Reduce& reduce);
  void reduce_owned(Reduction reduction, std::span<const Piece> placed);
  void reduce_mail(Reduction reduction, const Pieces& pieces);
  void reduce_placed(Reduction reduction, const Pieces& pieces);
  void reduce_staged(Reduction reduction, const Pieces& pieces, Slice chunk);
  [[nodiscard]] bool all_placed() const;

  /// Runs `exchange(begin, size)` for each chunk of [0, total), with all replicas in step. Before each chunk except the
  /// first, it runs `stage(begin, size)`. The first chunk must be staged before the call is opened.
  template <typename Exchange, typename Stage>
  Status in_chunks(std::size_t total, std::size_t chunk, const Exchange& exchange, const Stage& stage);

  NodeSegment* segment_;
  Options options_;
  Rendezvous rendezvous_;
  std::vector<const std::byte*> sources_;  ///< One per replica; scratch space of a call.
  std::vector<std::byte*> targets_;
  Background background_;
};

}  // namespace poprun::collectives
