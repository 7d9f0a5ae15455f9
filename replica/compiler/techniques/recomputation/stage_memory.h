#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/techniques/recomputation/kept.h"
#include "replica/graph/graph.h"

namespace poprun {

/// Bytes that one stage needs for activations and gradients: the sum of both.
struct StageMemory {
  Bytes stashed;  ///< What micro-batches leave from the forward to the backward part.
  Bytes peak;     ///< Most that is live besides while either part runs.
};

/// Memory of the stages of a pipeline, for any choice of what is kept.
///
/// A model of the pass "pipeline" and of liveness: a value lives in a stage from the stage's first operation that names
/// it to the last. With a stash length above 1, what the stage keeps does not live on between its parts, because it
/// lies in the stash. With length 1, it lies there only if other stages run on the same IPU meanwhile; at the
/// stage's own peak it is then counted twice.
class StageMemories {
 public:
  /// `ipu_of_stage` and `stash_lengths` by stage. `graph`, `micro_batch` and `update` must outlive this.
  StageMemories(const Graph& graph, const MicroBatch& micro_batch, const Region& update,
                std::vector<std::uint32_t> ipu_of_stage, std::vector<std::int64_t> stash_lengths);

  /// By stage. Cost: linear in the operations.
  [[nodiscard]] std::vector<StageMemory> measure(const ClonePlan& plan, const std::vector<bool>& kept);

  /// By stage, the bytes of the variables: parameters, accumulators, optimiser state. On each IPU that names a
  /// variable, the first such stage holds it or a copy; state belongs to the stage of the parameter it is updated with.
  [[nodiscard]] std::vector<Bytes> variables() const;

 private:
  using Index = MicroBatch::Index;

  struct Span {
    Index first = std::numeric_limits<Index>::max();
    Index last = 0;
    [[nodiscard]] bool used() const { return first <= last; }
  };
  /// A tensor's or a clone's life in one stage.
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
  std::vector<std::vector<Index>> operations_;  ///< By stage.
  std::vector<bool> made_here_;                 ///< By tensor: a micro-batch makes it.
  std::vector<bool> outlives_;                  ///< By tensor: the update reads it.

  // The stage under way.
  std::vector<Life> lives_;  ///< By 2 * tensor, + 1 for its clone.
  std::vector<std::size_t> touched_;
  Index now_ = 0;
  bool in_backward_ = false;
};

}  // namespace poprun
