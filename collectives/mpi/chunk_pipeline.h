#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "collectives/local/node_segment.h"
#include "collectives/local/tree_reduce.h"
#include "collectives/mpi/host_exchange.h"
#include "collectives/mpi/host_plan.h"
#include "collectives/mpi/host_wire.h"
#include "collectives/patterns/shares.h"
#include "replica/base/error.h"
#include "replica/ports/communicator.h"

namespace poprun::collectives {

/// Runs a large collective over H hosts, chunk by chunk: while the wire carries some chunks, the replicas work on
/// other chunks. Host h owns slice h of each chunk.
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
/// An all-reduce runs all five steps. A collective that only reduces runs steps 1, 2, 3 and 5. A collective that only
/// gathers runs steps 3, 4 and 5, and its step 3 copies each replica's contribution into `result`.
///
/// Chunks are stored in memory that the host's replicas share and the wire accesses. There are four slots, used in
/// turn: two for the chunks on the wire, one for the replicas' current chunk, and one that other replicas may still
/// read.
///
///   slot:   | sums: ordered by the host that combines them, subtree, element | received: by host,
///           subtree, element | result: by element of the chunk |
///
/// Sources are read in place if peers can find them, and otherwise from the staging areas, which costs a copy and one
/// more meeting. Sums of halves travel as float32, because rounding them on the way would change the result; results
/// travel as halves.
///
/// Threads: belongs to one replica's thread.
class ChunkPipeline {
 public:
  /// The part of the data that crosses the wire as a unit.
  struct Chunk {
    ElementType type = ElementType::kF32;
    std::size_t width = 1;           ///< Bytes per element of the result.
    std::vector<std::size_t> edges;  ///< Elements [edges[h], edges[h + 1]) are host h's slice.
    Slice part{};                    ///< If `pieces` is null: the bytes of each replica's data in the chunk.
    const Pieces* pieces = nullptr;  ///< The data to reduce; null if the call only gathers.
    Slice bytes{};                   ///< The chunk's bytes within the pieces.

    [[nodiscard]] std::size_t slice(std::size_t host) const { return edges[host + 1] - edges[host]; }
  };

  struct Job {
    Reduction reduction = Reduction::kSum;
    bool reduces = false;
    bool gathers = false;
    std::vector<Chunk> chunks;
    /// Puts this replica's contribution into its host's slice; used if nothing is reduced.
    std::function<void(const Chunk&, std::byte* slice)> fill{};
    /// Copies this replica's part out of the result.
    std::function<void(const Chunk&, std::byte* result)> take;
  };

  /// Bytes of shared memory that a pipeline needs.
  static std::size_t bytes_needed(const HostPlan& plan);

  /// All arguments must outlive the pipeline. It uses the beginning of the wire area, which must also outlive any
  /// failed transfer. `local` is this replica's index on its host. Chunks have at most `chunk_bytes` of float32 data.
  ChunkPipeline(NodeSegment& segment, const HostPlan& plan, HostExchange& exchange, HostSums& sums, std::size_t local,
                std::size_t chunk_bytes);

  /// Returns the size of a chunk for `bytes` of float32 data: small enough for chunks to overlap, but not too small.
  [[nodiscard]] std::size_t chunk_bytes(std::size_t bytes) const;

  /// Returns an all-reduce's chunks, each of one element type, sliced according to the plan's shares. `pieces` must
  /// outlive them.
  [[nodiscard]] std::vector<Chunk> cut(const Pieces& pieces) const;

  /// Returns chunks that cover `bytes` bytes of each replica in steps of `step`. In a chunk, host h's slice has
  /// `copies[h]` times as many bytes as the step. Elements have `width` bytes.
  static std::vector<Chunk> cut(std::size_t bytes, std::size_t step, std::span<const std::size_t> copies,
                                std::size_t width = 1);

  /// Runs `job`, the same on all replicas except for pieces, `fill` and `take`. Errors: those of HostExchange.
  Status run(const Job& job);

 private:
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
  void sum_range(Reduction reduction, const Chunk& chunk, std::size_t host, Slice range, bool placed, std::byte* sums);
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
