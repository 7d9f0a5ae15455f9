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
#include "collectives/local/pieces.h"
#include "collectives/local/rendezvous.h"
#include "replica/ports/communicator.h"

namespace poprun::collectives {

/// The buffers that are not empty, and where peers find those of `replica`.
std::vector<Piece> find_pieces(const NodeSegment& segment, std::size_t replica,
                               std::span<const Buffer> buffers);

/// What an all-reduce of buffers is; `pieces` as found of them.
Call call_of_all_reduce(Reduction reduction, std::span<const Buffer> buffers,
                        std::span<const Piece> pieces);

/// `Communicator` for replicas that are all on one host, as threads or as processes.
///
/// All-reduce of allocated buffers, in place: every replica reduces 1/R of all buffers together,
/// reading the others' memory directly, and writes that slice into all of them.
///
///   meet      everybody's buffers are complete, everybody calls the same
///   replica r:   | buffers of replica 0 |  ...  | buffers of replica R-1 |     slice r of each,
///                    [r]  \______________________/  [r]                        up the tree, back
///   meet      everybody's slices are written
///
/// A byte is read once and written once. Of few bytes the meetings take longest. So these are
/// copied before the first one into a mailbox, of which every replica has two, used in turn, and
/// the second one is spared: whoever comes back to a mailbox has met all the others since they read
/// it, in the call between. An all-reduce by mail is computed by every replica for itself.
///
/// Buffers outside allocated memory take the same way through
/// the staging areas, chunk by chunk. The other collectives read from the peers' memory or staging.
class NodeCommunicator final : public Communicator {
 public:
  struct Options {
    std::size_t self = 0;            ///< Index in the segment.
    std::size_t process_leader = 0;  ///< The index that maps new memory for its process.
    std::chrono::milliseconds deadline{0};
    std::vector<std::size_t>
        numbers{};                   ///< Numbers of the replicas in the segment; empty: 0, 1, ..
    std::string among{};             ///< As in Rendezvous::Options.
    std::shared_ptr<CallLog> log{};  ///< This replica's; null: one of its own.
    std::function<Status(std::span<const Call>)> agree{};  ///< As in Rendezvous::Options.
    LastExcuse last_excuse{};                              ///< As in Rendezvous::Options.
  };

  /// `segment` must outlive the communicator.
  NodeCommunicator(NodeSegment& segment, const Options& options);

  [[nodiscard]] ReplicaId self() const override;
  [[nodiscard]] std::size_t size() const override { return segment_->replicas(); }

  Result<std::span<std::byte>> allocate(Bytes size) override;
  Status all_reduce(Reduction reduction, std::span<const Buffer> buffers) override;
  Status begin_all_reduce(Reduction reduction, std::span<const Buffer> buffers) override {
    return background_.begin(*this, reduction, buffers);
  }
  Status await_all_reduces() override { return background_.await(); }
  Status reduce_scatter(Reduction reduction, ElementType type, std::span<const std::byte> data,
                        std::span<std::byte> shard, std::string_view name) override;
  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                    std::string_view name) override;
  Status broadcast(std::span<std::byte> data, ReplicaId root, std::string_view name) override;
  Status barrier() override;
  Result<std::unique_ptr<Communicator>> group(Group group) override;
  [[nodiscard]] std::vector<std::string> recent_calls() const override;

  /// The segment of this replica's group, `members` of this segment, once all replicas have made
  /// `call`; with `wire` bytes of wire, the same for all groups.
  Result<NodeSegment*> form_group(const Call& call, const std::vector<std::size_t>& members,
                                  Bytes wire);

  /// What a communicator over that segment takes.
  [[nodiscard]] Options options_among(const std::vector<std::size_t>& members) const;

  /// Where its replicas meet.
  [[nodiscard]] Rendezvous& rendezvous() { return rendezvous_; }

  /// Where this replica puts what it brings to the call that it opens next.
  [[nodiscard]] std::byte* next_mail() const;

  /// What `replica` has brought to the open call.
  [[nodiscard]] const std::byte* mail_of(std::size_t replica) const;

 private:
  Status share_region(const Call& call, Bytes size);
  void reduce_mail(Reduction reduction, const Pieces& pieces);
  void reduce_placed(Reduction reduction, const Pieces& pieces);
  void reduce_staged(Reduction reduction, const Pieces& pieces, Slice chunk);
  [[nodiscard]] bool all_placed() const;

  /// Runs `exchange(begin, size)` for chunks of [0, total), all replicas in step. Before each chunk
  /// but the first, whose data is staged before the call is opened, `stage(begin, size)`.
  template <typename Exchange, typename Stage>
  Status in_chunks(std::size_t total, std::size_t chunk, const Exchange& exchange,
                   const Stage& stage);

  NodeSegment* segment_;
  Options options_;
  Rendezvous rendezvous_;
  std::vector<const std::byte*> sources_;  ///< One a replica, scratch of a call.
  std::vector<std::byte*> targets_;
  Background background_;
};

}  // namespace poprun::collectives
