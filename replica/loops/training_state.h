#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/coordinator.pb.h"
#include "replica/base/error.h"
#include "replica/engine/engine.h"
#include "replica/ports/checkpoint_store.h"
#include "replica/ports/communicator.h"
#include "replica/program/program.h"

namespace poprun {

/// A copy of the running statistics from the beginning of each step. They are the only saved state that a micro-batch
/// changes, so, with the copy, a step that is dropped half-way leaves no trace.
class StatisticsBackup {
 public:
  /// `program` must outlive this.
  explicit StatisticsBackup(const Program& program);

  /// Copies the statistics at the beginning of a step. Cost: a few KiB per normalisation.
  void take(const Engine& engine);
  /// Gives the engine the statistics at the beginning of the step again.
  void restore(Engine& engine) const;
  /// Discards the copy when the step is complete.
  void forget() { taken_ = false; }

  /// Returns the bytes of a tensor after the last complete step; `bytes` are its current bytes.
  [[nodiscard]] std::span<const std::byte> of(std::string_view tensor, std::span<const std::byte> bytes) const;

 private:
  struct Statistic {
    std::uint32_t tensor;
    std::vector<std::byte> bytes;
  };
  const Program& program_;
  std::map<std::string, Statistic, std::less<>> statistics_;  ///< Keyed by name.
  bool taken_ = false;
};

/// The variables that a Program keeps from one training step to the next, and the replicas that store them: replica 0
/// stores the replicated variables, and the replicas of the first group store their shards of the sharded ones.
class TrainingState {
 public:
  /// `group` replicas share sharded variables (memory.sharding-group); 0 means all. `program` must outlive this.
  TrainingState(const Program& program, std::size_t self, std::size_t replicas, std::size_t group);

  /// Returns whether this replica contributes a part to each checkpoint.
  [[nodiscard]] bool has_part() const { return self_ < parts_; }

  /// Returns this replica's part of a checkpoint, without `host`. Requires: `has_part`.
  [[nodiscard]] proto::StatePart part() const;
  [[nodiscard]] std::size_t bytes() const;

  /// Copies the slices in order to `into`, which has `bytes()` bytes. The statistics copied are those of the last
  /// complete step.
  void copy(const Engine& engine, const StatisticsBackup& statistics, std::span<std::byte> into) const;

  /// Sets every variable to the value that replica 0 reads from `source`; other replicas pass null. Collective. Errors:
  /// those of `source` and of the communicator.
  Status restore(CheckpointSource* source, Engine& engine, Communicator& communicator) const;

 private:
  struct Variable {
    std::uint32_t tensor = 0;
    std::string name;
    std::size_t bytes = 0;
    std::size_t shard_bytes = 0;  ///< 0 if not sharded.
  };
  /// The slice of a variable that this replica stores.
  struct Slice {
    std::size_t variable = 0;
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };

  [[nodiscard]] proto::StateVariable described(const Variable& variable) const;

  const Program& program_;
  std::size_t self_;
  std::size_t shards_;     ///< Shards per sharded variable.
  std::size_t parts_ = 1;  ///< Replicas that store anything: the first ones.
  std::vector<Variable> variables_;
  std::vector<Slice> slices_;
};

}  // namespace poprun
