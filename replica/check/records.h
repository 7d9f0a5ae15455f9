#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "replica/loops/loop.h"
#include "replica/program/program.h"

/// Digests of what a run leaves behind after each step, to compare runs of one job without keeping their weights.
namespace poprun {

/// 64-bit digests of a variable's bytes.
struct StateDigest {
  std::uint64_t whole = 0;
  std::uint64_t part = 0;  ///< The part that is this replica's shard, where shards are taken.
  bool is_whole = true;    ///< False: the replica has no more than its shard.

  [[nodiscard]] bool agrees(const StateDigest& other) const {
    return is_whole && other.is_whole ? whole == other.whole : part == other.part;
  }
};

/// By name: weights, running statistics and optimiser state, and loss and accuracy.
using StateDigests = std::map<std::string, StateDigest, std::less<>>;

/// The replica's shard of a tensor: number `self` of `count`.
struct OwnShard {
  std::size_t count = 1;
  std::size_t self = 0;
};

/// Records the state after each step of a training loop.
class StateRecord final : public StepWatcher {
 public:
  /// `program` must outlive this.
  StateRecord(const Program& program, OwnShard shard) : program_(program), shard_(shard) {}

  /// Adds the outcome of an evaluation after the last step, as one more step.
  void add(const EvaluationReport& evaluation);

  /// By step, and last the evaluation if there was one.
  [[nodiscard]] std::span<const StateDigests> steps() const { return steps_; }

  /// Mean wall seconds of a step. The first one, which touches all memory, counts only if there is no other.
  [[nodiscard]] double step_seconds() const;

 private:
  void begin(std::uint64_t step, Engine& engine) override;
  void end(const StepReport& report, Engine& engine) override;

  [[nodiscard]] StateDigest digest(const Engine& engine, std::uint32_t tensor) const;

  const Program& program_;
  OwnShard shard_;
  std::vector<StateDigests> steps_;
  std::vector<double> seconds_;  ///< By step.
  double began_ = 0;
};

/// The first state that is not as in the reference.
struct StateDifference {
  std::uint64_t step = 0;  ///< From 1; one more than the last for the evaluation.
  std::string name;        ///< The first in name order.
};

/// Variables that only `other` has do not count: a variable may have replicas on several IPUs.
std::optional<StateDifference> first_difference(std::span<const StateDigests> reference,
                                                std::span<const StateDigests> other);

/// A hash of a tensor's bytes, for comparisons within a process.
std::uint64_t digest_of(std::span<const std::byte> bytes);

/// Digests of everything that the steps of one training step write, or those of the evaluation after it, in order and
/// in every micro-batch: to find where two runs of a job part. Costs 24 bytes for each tensor written.
class ValueTrace final : public StepWatcher, private StepObserver {
 public:
  enum class Of : std::uint8_t { kStep, kEvaluation };

  /// Traces training step `step`, from 1, or what the run does after it. `program` must outlive this, and this the run.
  ValueTrace(const Program& program, std::uint64_t step, Of traced) : program_(program), step_(step), traced_(traced) {}

  /// The first value of this trace whose counterpart in `other` is not equal, as a phrase: "'fc1.weight.gradient' of
  /// linear_grad in micro-batch 2, backward part of stage 1 on IPU 1". Where and by what operation are those of
  /// `other`. Values that only one has do not count.
  [[nodiscard]] std::optional<std::string> first_difference(const ValueTrace& other) const;

 private:
  /// A value that a step wrote.
  struct Value {
    std::uint32_t tensor;
    std::uint32_t micro_batch;
    std::uint32_t step;  ///< Step.number.
    std::uint64_t digest;
  };

  void begin(std::uint64_t step, Engine& engine) override;
  void end(const StepReport& report, Engine& engine) override;
  void watch(Engine& engine);
  void before(const proto::Step& step) override;
  void after(const proto::Step& step) override;
  void broken_off(const proto::Step& step) override;
  [[nodiscard]] bool sees_every_round() const override { return true; }

  [[nodiscard]] std::string text_of(const Value& value) const;

  const Program& program_;
  std::uint64_t step_;
  Of traced_;
  Engine* engine_ = nullptr;  ///< While it is traced.
  std::vector<Value> values_;
};

}  // namespace poprun
