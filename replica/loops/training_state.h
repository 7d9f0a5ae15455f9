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

/// Running statistics are all that a micro-batch changes of what is saved. Kept from the beginning of each step, they
/// make a step that was dropped half way leave nothing behind.
class StatisticsBackup {
 public:
  /// `program` must outlive this.
  explicit StatisticsBackup(const Program& program);

  /// A step begins: takes the statistics as they are. Costs a copy of them, some KiB a normalisation.
  void take(const Engine& engine);
  /// The step is whole: what the tensors hold now counts.
  void forget() { taken_ = false; }

  /// The bytes of a tensor as the last whole step left them; `bytes` are what it holds now.
  [[nodiscard]] std::span<const std::byte> of(std::string_view tensor, std::span<const std::byte> bytes) const;

 private:
  struct Statistic {
    std::uint32_t tensor;
    std::vector<std::byte> bytes;
  };
  std::map<std::string, Statistic, std::less<>> statistics_;  ///< By name.
  bool taken_ = false;
};

/// The variables that a Program keeps from one training step to the next, and which replica stores what of them:
/// replica 0 all that replicas have in common, and the replicas of the first group their shards of what is divided
/// among them.
class TrainingState {
 public:
  /// `group`: how many replicas divide variables among them, as memory.sharding-group; 0: all of `replicas`. `program`
  /// must outlive this.
  TrainingState(const Program& program, std::size_t self, std::size_t replicas, std::size_t group);

  /// Whether this replica has a part in each checkpoint.
  [[nodiscard]] bool has_part() const { return self_ < parts_; }

  /// This replica's part of a checkpoint, without `host`. Requires: `has_part`.
  [[nodiscard]] proto::StatePart part() const;
  /// Bytes of its slices.
  [[nodiscard]] std::size_t bytes() const;

  /// Copies the slices, one after the other, to `into`, of `bytes()`: as they are now, except for statistics that a
  /// step was dropped from.
  void copy(const Engine& engine, const StatisticsBackup& statistics, std::span<std::byte> into) const;

  /// Gives every variable the value that replica 0 reads from `source`; others pass null. Collective. Errors: those of
  /// `source` and of the communicator.
  Status restore(CheckpointSource* source, Engine& engine, Communicator& communicator) const;

 private:
  struct Variable {
    std::uint32_t tensor = 0;
    std::string name;
    std::size_t bytes = 0;
    std::size_t shard_bytes = 0;  ///< 0: every replica has all of it.
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
  std::size_t shards_;     ///< How many a variable is divided into, if it is.
  std::size_t parts_ = 1;  ///< Replicas that store anything: the first ones.
  std::vector<Variable> variables_;
  std::vector<Slice> slices_;
};

}  // namespace poprun
