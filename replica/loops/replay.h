#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/note.h"
#include "replica/engine/engine.h"
#include "replica/loops/host_streams.h"
#include "replica/loops/loop.h"
#include "replica/loops/training_state.h"
#include "replica/loops/value_place.h"
#include "replica/ports/communicator.h"
#include "replica/program/program.h"

/// Finds silent data corruption: memories or processors that change values without any failure. Since placement never
/// changes a bit (law 4), two replicas that compute the same must agree on every bit. A step that is replayed runs as
/// follows:
///
///   compare state    SHA-256 of each variable, between the hosts (or the replicas, if each has its own copy)
///   rehearse         each replica computes the micro-batches of another, on another host if there are several, with
///                    that replica's data and random numbers, up to the first update, and hashes every value
///   run              each replica computes its own micro-batches and hashes every value
///   compare values   if hashes differ, a third replica rehearses, and the majority tells who is wrong
///   run              the update
namespace poprun {

using Digest = std::array<std::byte, 32>;  ///< SHA-256.

/// The part of a training step that a replay repeats, and the values that it compares.
struct ReplayPlan {
  std::size_t steps = 0;  ///< Leading steps of "train": those before the first that changes weights or their state.
  /// Values that depend only on weights and on the micro-batches of a group of replicas, keyed by Step.number.
  std::map<std::uint32_t, std::vector<std::uint32_t>> compared;
  std::size_t group = 1;  ///< Consecutive replicas in a group. Above 1 if they share means (norm_span).
};

/// Returns the plan for a job. Pure. Errors: kUsage if each replica's values depend on all micro-batches of the step.
Result<ReplayPlan> plan_replay(const Program& program, std::size_t replicas);

/// Hashes of values, in the order in which a replica wrote them.
class ValueHashes final : public StepObserver {
 public:
  /// Both must outlive this.
  ValueHashes(const ReplayPlan& plan, const Engine& engine) : plan_(plan), engine_(engine) {}

  /// Returns the SHA-256 of all hashes.
  [[nodiscard]] Digest whole() const;
  [[nodiscard]] const std::vector<Digest>& hashes() const { return hashes_; }
  [[nodiscard]] const ValuePlace& place(std::size_t value) const { return places_.at(value); }

 private:
  void before(const proto::Step& /*step*/) override {}
  void after(const proto::Step& step) override;
  void broken_off(const proto::Step& /*step*/) override {}
  [[nodiscard]] bool sees_every_round() const override { return true; }

  const ReplayPlan& plan_;
  const Engine& engine_;
  std::vector<Digest> hashes_;
  std::vector<ValuePlace> places_;
};

/// Replays training steps. All calls are collective. Errors: kInfrastructure for corrupted data: the message names the
/// replica, the tensor and the step; those of the engine, the communicator and host streams.
class Replay {
 public:
  /// Makes the loop serve this window as stream kTrain, or its own again (null).
  using Serve = std::function<void(BatchWindow*)>;

  /// `statistics` holds those at the beginning of the step while a step runs. `micro_batches` is the number of batches
  /// per step. All references must outlive this.
  static Result<std::unique_ptr<Replay>> create(const Program& program, const LoopPorts& ports,
                                                const StatisticsBackup& statistics, std::uint64_t micro_batches,
                                                Serve serve);

  /// Runs "train" for training step `step`, counted from 1, twice up to the update.
  Status run(Engine& engine, std::uint64_t step);

  /// Compares all copies of each variable before step `step`.
  Status compare_state(const Engine& engine, std::uint64_t step);

  /// Returns what was compared, for the user.
  [[nodiscard]] Note note(const Engine& engine) const;

 private:
  Replay(const Program& program, ReplayPlan plan, const LoopPorts& ports, const StatisticsBackup& statistics,
         std::uint64_t micro_batches, Serve serve);

  [[nodiscard]] std::size_t replayed_by(std::size_t subject, std::size_t shift) const;
  Status rehearse(Engine& engine, std::uint64_t step, std::size_t shift, ValueHashes& hashes);
  Status compare(Engine& engine, std::uint64_t step, const ValueHashes& own, const ValueHashes& again);
  Result<std::string> verdict(std::size_t subject, const std::array<const ValueHashes*, 3>& hashes);
  Status blame_holders(const std::map<Digest, std::vector<std::size_t>>& holders, bool is_shared,
                       const std::string& what);
  Status fail_together(std::size_t speaker, std::string message);

  const Program& program_;
  ReplayPlan plan_;
  const LoopPorts& ports_;
  const StatisticsBackup& statistics_;
  std::uint64_t micro_batches_;
  Serve serve_;
  std::size_t self_;
  std::size_t replicas_;
  std::size_t shift_;  ///< This replica rehearses replica self + shift_, and in a vote self + third_.
  std::size_t third_;
  std::unique_ptr<Communicator> host_;
  std::vector<std::uint32_t> first_of_host_;  ///< For each replica, the first replica on its host.
  std::vector<std::uint32_t> variables_;
  std::uint64_t replayed_ = 0;  ///< Steps.
};

}  // namespace poprun
