#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "proto/coordinator.pb.h"
#include "replica/base/error.h"

namespace poprun {

/// Destination of one replica's parts of checkpoints. Belongs to one thread.
class CheckpointStore {
 public:
  CheckpointStore() = default;
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;
  virtual ~CheckpointStore() = default;

  [[nodiscard]] virtual bool is_due(std::uint64_t step) const = 0;

  /// Returns a buffer for the bytes of the part's slices, in order, to be filled before `send`. Only one copy exists at
  /// a time, so the call waits while the previous part is in flight, but only as long as the other replicas can wait
  /// for this replica. If the previous part is then still in flight, the call returns nothing, and this checkpoint is
  /// skipped. For the last checkpoint of a job that stops, the call waits up to 600 s.
  virtual std::optional<std::span<std::byte>> begin(proto::StatePart part, bool is_last) = 0;

  /// Sends the part while training continues, retrying until the next `begin` if the disk rejects it.
  virtual void send() = 0;
};

/// Source of the variables of the checkpoint from which a job resumes. Only replica 0 has one.
class CheckpointSource {
 public:
  CheckpointSource() = default;
  CheckpointSource(const CheckpointSource&) = delete;
  CheckpointSource& operator=(const CheckpointSource&) = delete;
  virtual ~CheckpointSource() = default;

  /// Reads the bytes of the next variable, which must be `variable`. Errors: kData if it is a different variable or has
  /// a different size; kInfrastructure if the launcher is gone.
  virtual Status read(const proto::StateVariable& variable, std::span<std::byte> into) = 0;
};

}  // namespace poprun
