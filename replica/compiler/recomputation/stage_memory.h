#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "replica/base/units.h"
#include "replica/compiler/recomputation/clones.h"
#include "replica/compiler/recomputation/micro_batch.h"
#include "replica/graph/graph.h"

namespace poprun {

/// Bytes that one stage needs for activations and gradients.
struct StageMemory {
  Bytes kept;  ///< What one micro-batch leaves from the forward to the backward part.
  Bytes peak;  ///< Most that is live at once while either part runs.
};

/// What the stages of a pipeline need, for any choice of what is kept.
///
/// A model of the pass "pipeline" and of liveness: a value lives in a stage from the stage's first
/// operation that names it to the last. With a stash length above 1, what the stage keeps does not
/// live on between its parts, because it lies in the stash.
class StageMemories {
 public:
  /// `stash_lengths` by stage. Everything must outlive this.
  StageMemories(const Graph& graph, const MicroBatch& micro_batch, const Region& update,
                std::vector<std::int64_t> stash_lengths);

  /// By stage. Cost: linear in the operations.
  [[nodiscard]] std::vector<StageMemory> measure(const ClonePlan& plan,
                                                 const std::vector<bool>& kept);

  /// By stage, the bytes of the variables: parameters, accumulators, optimiser state. On each IPU
  /// that names a variable, the first such stage holds it or a copy; state belongs to the stage of
  /// the parameter it is updated with. `update` is the constructor's.
  [[nodiscard]] std::vector<Bytes> variables(const Region& update,
                                             std::span<const std::uint32_t> ipu_of_stage) const;

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
  [[nodiscard]] StageMemory memory(bool has_stash) const;

  const Graph& graph_;
  const MicroBatch& micro_batch_;
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
