#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "replica/loops/loop.h"
#include "replica/loops/value_place.h"
#include "replica/program/program.h"

/// Digests of a run's state after each step, to compare runs of one job without keeping their weights.
namespace poprun {

struct StateDigest {
  std::uint64_t whole = 0;
  std::uint64_t part = 0;  ///< Digest of this replica's shard alone.
  bool is_whole = true;    ///< False if the replica has only its shard.

  [[nodiscard]] bool agrees(const StateDigest& other) const {
    return is_whole && other.is_whole ? whole == other.whole : part == other.part;
  }
};

/// Digests, keyed by name, of weights, running statistics, optimiser state, loss and accuracy.
using StateDigests = std::map<std::string, StateDigest, std::less<>>;

/// The replica's shard of a tensor: number `self` of `count`.
struct OwnShard {
  std::size_t count = 1;
  std::size_t self = 0;
};

/// Records the state after each step of a training loop.
class StateRecord final : public StepWatcher {
 public:
  /// Hashes the state after step `hashed_step`, counted from 1, if that is not 0. `program` must outlive this.
  StateRecord(const Program& program, OwnShard shard, std::uint64_t hashed_step = 0)
      : program_(program), shard_(shard), hashed_step_(hashed_step) {}

  /// Adds the outcome of an evaluation after the last step, as one more step.
  void add(const EvaluationReport& evaluation);

  /// Returns the digests of each step, followed by those of the evaluation if there was one.
  [[nodiscard]] std::span<const StateDigests> steps() const { return steps_; }

  /// Returns the SHA-256 of the state after the step to hash (CertifiedRun.state_sha256 in proto/check.proto).
  [[nodiscard]] const std::string& state_sha256() const { return state_sha256_; }

  /// Returns the mean wall seconds per step. Leaves out the first step, which touches all memory, if there are further
  /// steps.
  [[nodiscard]] double step_seconds() const;

 private:
  void begin(std::uint64_t step, Engine& engine) override;
  void end(const StepReport& report, Engine& engine) override;

  [[nodiscard]] StateDigest digest(const Engine& engine, std::uint32_t tensor) const;
  [[nodiscard]] std::string hash(const Engine& engine) const;

  const Program& program_;
  OwnShard shard_;
  std::uint64_t hashed_step_;
  std::string state_sha256_;
  std::vector<StateDigests> steps_;
  std::vector<double> seconds_;  ///< For each step.
  double began_ = 0;
};

/// The first state that differs from the reference.
struct StateDifference {
  std::uint64_t step = 0;  ///< From 1; for the evaluation, one more than the last step.
  std::string name;        ///< The first one in name order.
};

/// Returns the first difference. Ignores variables found only in `other`, which may have more copies of a variable.
std::optional<StateDifference> first_difference(std::span<const StateDigests> reference,
                                                std::span<const StateDigests> other);

/// Returns a hash of a tensor's bytes, for comparisons within a process.
std::uint64_t digest_of(std::span<const std::byte> bytes);

/// Digests, in order, of everything that one training step, or the evaluation after it, writes in every micro-batch.
/// They show where two runs of a job diverge. Cost: 24 bytes per tensor written.
class ValueTrace final : public StepWatcher, private StepObserver {
 public:
  enum class Of : std::uint8_t { kStep, kEvaluation };

  /// Traces training step `step`, counted from 1, or the evaluation after that step. `program` must outlive the trace,
  /// which must outlive the run.
  ValueTrace(const Program& program, std::uint64_t step, Of traced) : program_(program), step_(step), traced_(traced) {}

  /// Returns the first value of this trace that differs from its counterpart in `other`, as a phrase:
  /// "'fc1.weight.gradient' of linear_grad in micro-batch 2, backward part of stage 1 on IPU 1". The place and the
  /// operation are those in `other`. Ignores values that only one trace contains.
  [[nodiscard]] std::optional<std::string> first_difference(const ValueTrace& other) const;

 private:
  struct Value {
    ValuePlace place;
    std::uint64_t digest;
  };

  void begin(std::uint64_t step, Engine& engine) override;
  void end(const StepReport& report, Engine& engine) override;
  void watch(Engine& engine);
  void before(const proto::Step& step) override;
  void after(const proto::Step& step) override;
  void broken_off(const proto::Step& step) override;
  [[nodiscard]] bool sees_every_round() const override { return true; }

  const Program& program_;
  std::uint64_t step_;
  Of traced_;
  Engine* engine_ = nullptr;  ///< Set while the step or evaluation is traced.
  std::vector<Value> values_;
};

}  // namespace poprun
