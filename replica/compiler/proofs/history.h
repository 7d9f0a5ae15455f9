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

/// One run of one operation that made values.
struct Evaluation {
  const FlatOperation* operation = nullptr;
  Instant now;
  std::vector<Value> inputs;
  std::size_t first = 0;  ///< Which of the operation's inputs is inputs[0].
};

/// All that an interpreter evaluated, to find where two of them began to differ. Cost: about 100 bytes an operand.
class History {
 public:
  explicit History(const FlatGraph& graph) : graph_(graph) {}

  /// Returns its number, from 1 on.
  std::uint32_t add(Evaluation evaluation);

  /// A tensor holds a value. The first to hold it gives it its name.
  void hold(std::uint32_t tensor, const Value& value);

  [[nodiscard]] const FlatGraph& graph() const { return graph_; }
  /// Requires: 0 < evaluation.
  [[nodiscard]] const Evaluation& at(std::uint32_t evaluation) const { return evaluations_.at(evaluation - 1); }
  [[nodiscard]] const std::vector<Evaluation>& evaluations() const { return evaluations_; }

  /// Whether a tensor ever held the value.
  [[nodiscard]] bool has(const Value& value) const;

  /// "'h' of micro-batch 2", or nothing if no tensor ever held the value.
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

/// Why a value of `rewritten` is not the `wanted` one of `plain`, as one line: the first operation behind it that makes
/// of the plain job's values one that the plain job does not have, and what is wrong about it.
std::string explain_difference(const History& plain, const Value& wanted, const History& rewritten, const Value& got);

/// "micro-batch 3 of backward.1: relu_gradient 'dx' of stage 1"
std::string describe(const FlatGraph& graph, const FlatOperation& operation, const Instant& now);

}  // namespace poprun
