#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "collectives/local/node_segment.h"
#include "collectives/local/pieces.h"
#include "collectives/mpi/host_exchange.h"
#include "collectives/mpi/host_plan.h"
#include "collectives/mpi/host_sums.h"
#include "collectives/mpi/host_wire.h"
#include "collectives/patterns/slices.h"
#include "replica/base/error.h"
#include "replica/ports/communicator.h"

namespace poprun::collectives {

/// Carries a collective of many bytes over H hosts, chunk by chunk: while the wire works on some
/// chunks, the replicas work on others. Host h owns slice h of each chunk.
///
///   1  sum     all replicas of a host: the sums of its subtrees of the canonical tree -> `sums`
///   2  wire    slice g of `sums` to host g, slices of mine -> `received`
///   3  combine all replicas: the sums of all hosts, up the tree, my host's slice -> `result`
///   4  wire    my slice of `result` to every host, their slices -> `result`
///   5  take    every replica: `result` into its buffers
///
///   tick          t   t + 1   t + 2   t + 3   t + 4   t + 5
///   chunk c       1   2 ......        3   4 ......    5          A tick ends with a meeting of the
///   chunk c + 1       1       2 ......        3   4 ..           host; its sums and results are
///   chunk c + 2               1       2 ......        3          posted then. The wire always has
///                                                                the posts of two ticks to carry.
///
/// An all-reduce takes all five steps. What only reduces takes 1, 2, 3, 5; what only gathers 3, 4,
/// 5, and what a replica brings is filled into `result` in the place of 3.
///
/// Chunks lie in memory that all replicas of the host share and the wire reads and writes, in four
/// slots used in turn: two ticks on the wire, one in work, one that others may still read.
///
///   slot:   | sums: by host that combines them, subtree, element | received: by host, subtree,
///           element | result: by element of the chunk |
///
/// Sources are read where they lie if peers find them there, and from the staging areas otherwise,
/// which costs a copy and one more meeting. Sums of halves travel as float32, since rounding them
/// on the way would change the result; results travel as halves.
///
/// Threads: belongs to one replica's.
class ChunkPipeline {
 public:
  /// What crosses the wire at a time.
  struct Chunk {
    ElementType type = ElementType::kF32;
    std::size_t width = 1;           ///< Bytes of an element of the result.
    std::vector<std::size_t> edges;  ///< Elements [edges[h], edges[h + 1]) are host h's slice.
    Slice part{};                    ///< Bytes of what each replica brings or gets, if not pieces.
    const Pieces* pieces = nullptr;  ///< Where its elements are, where they are to be reduced.
    Slice bytes{};                   ///< Its bytes of the pieces.

    [[nodiscard]] std::size_t slice(std::size_t host) const {
      return edges[host + 1] - edges[host];
    }
  };

  /// A collective.
  struct Job {
    Reduction reduction = Reduction::kSum;
    bool reduces = false;
    bool gathers = false;
    std::vector<Chunk> chunks;
    /// Puts what this replica brings into its host's slice; where nothing is reduced.
    std::function<void(const Chunk&, std::byte* slice)> fill{};
    /// Takes what this replica gets.
    std::function<void(const Chunk&, std::byte* result)> take;
  };

  /// Shared memory that it needs.
  static std::size_t bytes_needed(const HostPlan& plan);

  /// All must outlive it, and the memory, the beginning of the segment's wire area, also what has
  /// failed on the wire. `local` is this replica's index on its host; chunks have at most
  /// `chunk_bytes` of float32 data.
  ChunkPipeline(NodeSegment& segment, const HostPlan& plan, HostExchange& exchange, HostSums& sums,
                std::size_t local, std::size_t chunk_bytes);

  /// Bytes of float32 data of a chunk where there are `bytes` in all: enough chunks to overlap,
  /// none too small.
  [[nodiscard]] std::size_t chunk_bytes(std::size_t bytes) const;

  /// The chunks of an all-reduce: one type each, slices as the plan shares them out. `pieces` must
  /// outlive them.
  [[nodiscard]] std::vector<Chunk> cut(const Pieces& pieces) const;

  /// Chunks of `step` bytes of `bytes` that replicas have each; host h's slice is `copies[h]` of
  /// them one after another. Elements have `width` bytes.
  static std::vector<Chunk> cut(std::size_t bytes, std::size_t step,
                                std::span<const std::size_t> copies, std::size_t width = 1);

  /// All replicas of all hosts run the same job, each with its own pieces, `fill` and `take`.
  /// Errors: those of HostExchange.
  Status run(const Job& job);

 private:
  /// Where a chunk lies on its way.
  struct Slot {
    std::byte* sums;
    std::byte* received;
    std::byte* result;
  };

  struct Transfers {
    std::vector<HostWire::Transfer> outgoing{};
    std::vector<HostWire::Transfer> incoming{};
  };

  Status sum(const Job& job, std::size_t index);
  void sum_range(Reduction reduction, const Chunk& chunk, std::size_t host, Slice range,
                 bool placed, std::byte* sums);
  void make_result(const Job& job, std::size_t index);
  void add_sums(const Job& job, std::size_t index, Transfers& transfers) const;
  void add_result(const Job& job, std::size_t index, Transfers& transfers) const;

  [[nodiscard]] Slot slot(std::size_t index) const;
  [[nodiscard]] std::size_t hosts() const { return plan_->hosts(); }
  [[nodiscard]] std::size_t locals() const { return plan_->replicas[plan_->self].size(); }

  NodeSegment* segment_;
  const HostPlan* plan_;
  HostExchange* exchange_;
  HostSums* sums_;
  std::size_t local_;
  std::size_t chunk_bytes_;
  std::size_t slot_bytes_;
};

}  // namespace poprun::collectives
