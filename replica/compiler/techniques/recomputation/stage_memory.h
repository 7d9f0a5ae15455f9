#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/techniques/recomputation/kept.h"
#include "replica/graph/graph.h"

namespace poprun {

/// Bytes that one stage needs for activations and gradients: the sum of both fields.
struct StageMemory {
  Bytes stashed;  ///< Bytes that micro-batches keep between the forward and the backward part.
  Bytes peak;     ///< Maximum of all other live bytes while either part runs.
};

/// Memory of the stages of a pipeline, for any choice of kept activations.
///
/// The model follows the pass "pipeline" and liveness: a value lives from a stage's first operation that uses it to the
/// last. With a stash length above 1, values that the stage keeps are in the stash between its parts, not live. With
/// length 1, they count as stashed only if the IPU has other stages; the stage's own peak then counts them again.
class StageMemories {
 public:
  /// `ipu_of_stage`, `stash_lengths`: one per stage. `graph`, `micro_batch` and `update` must outlive this object.
  StageMemories(const Graph& graph, const MicroBatch& micro_batch, const Region& update,
                std::vector<std::uint32_t> ipu_of_stage, std::vector<std::int64_t> stash_lengths);

  /// Returns the memory of each stage. Cost: linear in the number of operations.
  [[nodiscard]] std::vector<StageMemory> measure(const ClonePlan& plan, const std::vector<bool>& kept);

  /// Returns, for each stage, the bytes of variables: parameters, accumulators and optimiser state. On each IPU, a
  /// variable or its copy counts in the first stage that uses it. Optimiser state counts in the stage of its parameter.
  [[nodiscard]] std::vector<Bytes> variables() const;

 private:
  using Index = MicroBatch::Index;

  struct Span {
    Index first = std::numeric_limits<Index>::max();
    Index last = 0;
    [[nodiscard]] bool used() const { return first <= last; }
  };
  /// Live range of a tensor or a clone in one stage.
  struct Life {
    Span forward;
    Span backward;
  };

  void walk(std::uint32_t stage, const ClonePlan& plan, const std::vector<bool>& kept);
  void name_operands(const Operation& operation, bool is_clone, const std::vector<bool>& kept);
  void name(TensorId tensor, bool is_clone);
  [[nodiscard]] std::int64_t stashed_micro_batches(std::uint32_t stage) const;
  [[nodiscard]] StageMemory memory(std::uint32_t stage) const;

  const Graph& graph_;
  const MicroBatch& micro_batch_;
  const Region& update_;
  std::vector<std::uint32_t> ipu_of_stage_;
  std::vector<std::int64_t> stash_lengths_;
  std::vector<std::vector<Index>> operations_;  ///< Indexed by stage.
  std::vector<bool> made_here_;                 ///< For each tensor, whether a micro-batch computes it.
  std::vector<bool> outlives_;                  ///< For each tensor, whether the update reads it.

  std::vector<Life> lives_;  ///< Indexed by 2 * tensor, plus 1 for its clone.
  std::vector<std::size_t> touched_;
  Index now_ = 0;
  bool in_backward_ = false;
};

}  // namespace poprun
