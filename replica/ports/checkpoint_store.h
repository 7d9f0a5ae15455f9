#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "proto/coordinator.pb.h"
#include "replica/base/error.h"

namespace poprun {

/// Where one replica's parts of checkpoints go. Belongs to one thread.
class CheckpointStore {
 public:
  CheckpointStore() = default;
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;
  virtual ~CheckpointStore() = default;

  /// Whether one is to be taken now that `step` steps are done.
  [[nodiscard]] virtual bool is_due(std::uint64_t step) const = 0;

  /// Room for the bytes of the part's slices, one after the other, to be filled before `send`. There is one copy at a
  /// time: while the part before is on its way, waits for it, though only as long as the other replicas can wait for
  /// this one. Nothing if it still is then: this checkpoint is left out. The last one, of a job that stops, is worth a
  /// wait of 600 s.
  virtual std::optional<std::span<std::byte>> begin(proto::StatePart part, bool is_last) = 0;

  /// Sends it while training goes on, again and again where the disk does not take it, until the next one begins.
  virtual void send() = 0;
};

/// The variables of the checkpoint that a job goes on from, on replica 0.
class CheckpointSource {
 public:
  CheckpointSource() = default;
  CheckpointSource(const CheckpointSource&) = delete;
  CheckpointSource& operator=(const CheckpointSource&) = delete;
  virtual ~CheckpointSource() = default;

  /// The bytes of the next variable, which must be this one. Errors: kData, it is another one, or of another size;
  /// kInfrastructure, the launcher went away.
  virtual Status read(const proto::StateVariable& variable, std::span<std::byte> into) = 0;
};

}  // namespace poprun
