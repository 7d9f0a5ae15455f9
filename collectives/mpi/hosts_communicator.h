#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/local/background.h"
#include "collectives/local/node_communicator.h"
#include "collectives/local/node_segment.h"
#include "collectives/local/tree_reduce.h"
#include "collectives/mpi/chunk_pipeline.h"
#include "collectives/mpi/host_exchange.h"
#include "collectives/mpi/host_plan.h"
#include "collectives/mpi/host_wire.h"
#include "collectives/patterns/canonical_tree.h"
#include "replica/ports/communicator.h"

namespace poprun::collectives {

/// `Communicator` for replicas on several hosts. The replicas of one host share memory, as in NodeCommunicator; the
/// hosts exchange their replicas' sums. The first process of each host sends its replicas' announcements to the other
/// hosts. Small sums or shards travel with the announcement, from every host to every host. Such a call needs only one
/// phase on the wire and two meetings. Larger data goes through the ChunkPipeline.
///
/// On H hosts, a host with S subtrees and share f of the elements sends S (1 - f) of the data as sums and (H - 1) f as
/// results. If the replicas of each host form one subtree, as with 4 hosts of 4 replicas, S is 1, the shares are equal,
/// and the host sends 2 (H - 1) / H of the data, which is the minimum. Otherwise, S is at most 2 log2 of the number of
/// the host's replicas if these are consecutive, and hosts with more sums get larger shares (see `shares_of`).
class HostsCommunicator final : public Communicator {
 public:
  struct Options {
    std::size_t local = 0;           ///< Index among the replicas of the host.
    std::size_t process_leader = 0;  ///< Local index of the process's first replica.
    std::string among{};             ///< See Rendezvous::Options.
    std::shared_ptr<CallLog> log{};  ///< See NodeCommunicator::Options.
    std::chrono::milliseconds deadline{0};
    std::size_t chunk_bytes = NodeSegment::kStagingBytes;  ///< Upper limit on a chunk's float32 data.
  };

  /// Returns the bytes of wire area that the host's segment needs.
  static Bytes wire_bytes(const HostPlan& plan);

  /// `segment` must outlive the communicator. `channel` is this channel's number on the link.
  HostsCommunicator(NodeSegment& segment, std::shared_ptr<const HostPlan> plan, std::shared_ptr<MpiLink> link,
                    int channel, const Options& options);

  [[nodiscard]] ReplicaId self() const override {
    return static_cast<ReplicaId>(plan_->replicas[plan_->self][options_.local]);
  }
  [[nodiscard]] std::size_t size() const override { return plan_->total(); }

  Result<std::span<std::byte>> allocate(Bytes size) override { return settled(node_.allocate(size)); }
  Result<CommonMemory> allocate_common(Bytes size) override;
  Status all_reduce(Reduction reduction, std::span<const Buffer> buffers) override;
  Status reduce_to_owners(Reduction reduction, std::span<const Buffer> buffers) override {
    return all_reduce(reduction, buffers);  // Other hosts need the whole sums, so nothing would be saved.
  }
  Status begin_all_reduce(Reduction reduction, std::span<const Buffer> buffers) override {
    return background_.begin(*this, reduction, buffers);
  }
  Status await_all_reduces() override { return background_.await(); }
  Status reduce_scatter(Reduction reduction, ElementType type, std::span<const std::byte> data,
                        std::span<std::byte> shard, std::string_view name) override;
  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::string_view name) override;
  Status broadcast(std::span<std::byte> data, ReplicaId root, std::string_view name) override;
  Status barrier() override { return exchange_.settle(node_.barrier()); }
  Result<std::unique_ptr<Communicator>> group(Group group) override;
  [[nodiscard]] std::vector<std::string> recent_calls() const override { return node_.recent_calls(); }

 private:
  using Chunk = ChunkPipeline::Chunk;

  Result<std::unique_ptr<Communicator>> form_group(Group group, Members mine);
  Result<std::unique_ptr<Communicator>> form_host();
  Result<int> agree_on_channel(Members mine);
  Status agree(std::span<const Call> calls);
  Status open(const Call& call, Place place = {}) { return exchange_.settle(node_.rendezvous().open(call, place)); }
  /// Returns `result`. If it is an error, reports it to the other hosts.
  template <typename Value>
  Result<Value> settled(Result<Value> result) {
    if (!result) {
      static_cast<void>(exchange_.settle(tl::unexpected<Error>{result.error()}));
    }
    return result;
  }
  Status open_with(const Payload& payload, const Call& call);

  [[nodiscard]] std::vector<std::size_t> sums_bytes(std::size_t count) const;
  void pack_sums(Reduction reduction, const Pieces& mailed, std::byte* sums);
  void combine_payloads(Reduction reduction, ElementType type, std::size_t total, std::size_t first, std::size_t count,
                        std::byte* target);
  [[nodiscard]] Pieces pieces_of_shards(const Piece& data, Slice part) const;

  [[nodiscard]] std::size_t hosts() const { return plan_->hosts(); }
  [[nodiscard]] std::size_t locals() const { return plan_->replicas[plan_->self].size(); }

  NodeSegment* segment_;
  std::shared_ptr<const HostPlan> plan_;
  std::shared_ptr<MpiLink> link_;
  Announcements announcements_;
  Options options_;
  NodeCommunicator node_;
  HostExchange exchange_;
  HostSums sums_;
  ChunkPipeline chunks_;
  const Payload* payload_ = nullptr;  ///< The payload of the call that is being opened.
  Background background_;
};

}  // namespace poprun::collectives
