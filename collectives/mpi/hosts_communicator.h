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
#include "collectives/local/node_communicator.h"
#include "collectives/local/node_segment.h"
#include "collectives/local/pieces.h"
#include "collectives/mpi/announcements.h"
#include "collectives/mpi/host_plan.h"
#include "collectives/mpi/host_wire.h"
#include "collectives/mpi/mpi_link.h"
#include "collectives/patterns/members.h"
#include "replica/ports/communicator.h"

namespace poprun::collectives {

/// `Communicator` for replicas on several hosts. Those of one host share memory, as
/// NodeCommunicator has it; hosts exchange what their replicas come to together.
///
/// All-reduce, chunk by chunk, on H hosts. Host h owns slice h of the chunk, its share of it.
///
///   1  sum     all replicas of a host: the sums of its subtrees of the canonical tree -> `sums`
///   2  wire    slice g of `sums` to host g                       out: (H - 1) / H of S sums
///   3  combine all replicas: the sums of all hosts, up the tree, my host's slice -> `result`
///   4  wire    my slice of `result` to every host                out: (H - 1) / H of the chunk
///   5  take    every replica: `result` into its buffers
///
///   tick          t   t + 1   t + 2   t + 3   t + 4   t + 5
///   chunk c       1   2 ......        3   4 ......    5          A tick ends with a meeting of the
///   chunk c + 1       1       2 ......        3   4 ..           host; its sums and results are
///   chunk c + 2               1       2 ......        3          posted then. The wire always has
///                                                                the posts of two ticks to carry.
///
/// Where the replicas of each host are one subtree, as they are for 4 hosts of 4 replicas, S is 1,
/// shares are equal, and a host sends 2 (H - 1) / H of the data, which is the least there is.
/// Otherwise a host sends S sums, S at most 2 log2 of its replicas where these are neighbours, and
/// hosts with more sums get larger shares: `shares_of`. Sums of halves travel as float32, since
/// rounding them on the way would change the result; results travel as halves.
///
/// Reduce-scatter goes 1, 2, 3, 5 with the replicas' shards as slices; all-gather and broadcast 3,
/// 4, 5 without sums.
///
/// Before all that the first processes of the hosts tell one another what their replicas have
/// announced. Where sums or shards are few bytes these go along, every host's to every host, and
/// the call is over with that: one phase on the wire and two meetings.
class HostsCommunicator final : public Communicator {
 public:
  struct Options {
    std::size_t local = 0;           ///< Index among the replicas of the host.
    std::size_t process_leader = 0;  ///< That of the process's first replica.
    std::string among{};             ///< Of Rendezvous::Options.
    std::shared_ptr<CallLog> log{};  ///< Of NodeCommunicator::Options.
    std::chrono::milliseconds deadline{0};
    std::size_t chunk_bytes = NodeSegment::kStagingBytes;  ///< Of float32 data; at most this.
  };

  /// Memory that the host's segment needs for the wire.
  static Bytes wire_bytes(const HostPlan& plan);

  /// `segment` must outlive the communicator. `channel` is this channel's number on the link.
  HostsCommunicator(NodeSegment& segment, std::shared_ptr<const HostPlan> plan,
                    std::shared_ptr<MpiLink> link, int channel, const Options& options);

  [[nodiscard]] ReplicaId self() const override;
  [[nodiscard]] std::size_t size() const override { return plan_->total(); }

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
  [[nodiscard]] std::vector<std::string> recent_calls() const override {
    return node_.recent_calls();
  }

 private:
  /// What crosses the wire at a time.
  struct Chunk {
    ElementType type = ElementType::kF32;
    std::size_t width = 1;           ///< Bytes of an element of the result.
    std::vector<std::size_t> edges;  ///< Elements [edges[h], edges[h + 1]) are host h's slice.
    const Pieces* pieces = nullptr;  ///< Where its elements are, where they are to be reduced.
    Slice bytes{};                   ///< Of the pieces.

    [[nodiscard]] std::size_t slice(std::size_t host) const {
      return edges[host + 1] - edges[host];
    }
  };

  /// A collective as the pipeline carries it out.
  struct Job {
    Reduction reduction = Reduction::kSum;
    bool reduces = false;
    bool gathers = false;
    std::vector<Chunk> chunks;
    /// Puts what this replica brings into its host's slice; where nothing is reduced.
    std::function<void(std::size_t index, std::byte* slice)> fill{};
    /// Takes what this replica gets.
    std::function<void(std::size_t index, const Chunk&, std::byte* result)> take;
  };

  /// Where a chunk lies on its way.
  struct Slot {
    std::byte* sums;      ///< Of my host's subtrees: by host that combines them, subtree, element.
    std::byte* received;  ///< Of the other hosts' subtrees, for my host's slice.
    std::byte* result;
  };

  struct Transfers {
    std::vector<HostWire::Transfer> outgoing{};
    std::vector<HostWire::Transfer> incoming{};
  };

  Result<std::unique_ptr<Communicator>> form_group(Group group, Members mine);
  Result<int> agree_on_channel(Members mine);
  Status agree(std::span<const Call> calls);
  Status open(const Call& call, Place place = {});
  Status open_with(const Payload& payload, const Call& call);
  Status run(const Job& job);
  Status settle(Status status);
  Status meet();
  Status arrive();

  Status sum(const Job& job, std::size_t index);
  void sum_range(Reduction reduction, const Chunk& chunk, std::size_t host, Slice range,
                 bool placed, std::byte* sums);
  void make_result(const Job& job, std::size_t index);
  void add_sums(const Job& job, std::size_t index, Transfers& transfers) const;
  void add_result(const Job& job, std::size_t index, Transfers& transfers) const;

  [[nodiscard]] std::vector<std::size_t> sums_bytes(std::size_t count) const;
  void pack_sums(Reduction reduction, const Pieces& mailed, std::byte* sums);
  void combine_payloads(Reduction reduction, ElementType type, std::size_t total, std::size_t first,
                        std::size_t count, std::byte* target);
  template <typename SumAt>
  void combine(Reduction reduction, ElementType type, const SumAt& sum_at, std::byte* target,
               std::size_t count);

  [[nodiscard]] Slot slot(std::size_t index) const;
  [[nodiscard]] std::size_t chunk_of(std::size_t bytes) const;
  [[nodiscard]] std::vector<Chunk> chunks_of(const Pieces& pieces) const;
  [[nodiscard]] std::size_t hosts() const { return plan_->hosts(); }
  [[nodiscard]] std::size_t locals() const { return plan_->replicas[plan_->self].size(); }
  [[nodiscard]] std::size_t sums_of(std::size_t host) const { return plan_->subtrees[host].size(); }

  NodeSegment* segment_;
  std::shared_ptr<const HostPlan> plan_;
  std::shared_ptr<MpiLink> link_;
  HostWire wire_;
  Announcements announcements_;
  bool carries_;  ///< The first replica of the process does, for all of them.
  Options options_;
  NodeCommunicator node_;
  const Payload* payload_ = nullptr;  ///< Of the call that is being opened.
  std::string call_;                  ///< "all-reduce 17".
  bool told_ = false;                 ///< That it has failed, to the other hosts.
  std::vector<const std::byte*> sources_;
  Background background_;
};

}  // namespace poprun::collectives
