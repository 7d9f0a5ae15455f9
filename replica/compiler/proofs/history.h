#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "replica/compiler/proofs/flat_graph.h"
#include "replica/compiler/proofs/value.h"

namespace poprun {

struct Evaluation {
  const FlatOperation* operation = nullptr;
  Instant now;
  std::vector<Value> inputs;
  std::size_t first = 0;  ///< Position of inputs[0] among the operation's inputs.
};

/// Log of an interpreter's evaluations, to find where two runs begin to differ. Cost: about 100 bytes per operand.
class History {
 public:
  explicit History(const FlatGraph& graph) : graph_(graph) {}

  /// Adds an evaluation and returns its number; the first is 1.
  std::uint32_t add(Evaluation evaluation);

  /// Records that a tensor holds a value. The value is named after its first holder.
  void hold(std::uint32_t tensor, const Value& value);

  [[nodiscard]] const FlatGraph& graph() const { return graph_; }
  /// Returns the evaluation with this number. Requires: 0 < evaluation.
  [[nodiscard]] const Evaluation& at(std::uint32_t evaluation) const { return evaluations_.at(evaluation - 1); }
  [[nodiscard]] const std::vector<Evaluation>& evaluations() const { return evaluations_; }

  [[nodiscard]] bool has(const Value& value) const;

  /// Returns the value's name, such as "'h' of micro-batch 2", or a phrase for a value that no tensor ever held.
  [[nodiscard]] std::string name(const Value& value) const;

 private:
  struct Holder {
    std::uint32_t tensor = 0;
    std::uint32_t evaluation = 0;
  };
  using Key = std::tuple<std::uint64_t, std::uint64_t, std::int64_t>;

  const FlatGraph& graph_;
  std::vector<Evaluation> evaluations_;
  std::map<Key, Holder> holders_;
};

/// Explains in one line why `got` in `rewritten` differs from `wanted` in `plain`. Names the first upstream operation
/// that computes, from values of the plain job, a value unknown to that job, and says what is wrong with the operation.
std::string explain_difference(const History& plain, const Value& wanted, const History& rewritten, const Value& got);

/// Describes one execution, such as "micro-batch 3 of backward.1: relu_gradient 'dx' of stage 1".
std::string describe(const FlatGraph& graph, const FlatOperation& operation, const Instant& now);

}  // namespace poprun
