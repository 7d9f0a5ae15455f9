#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "replica/ports/checkpoint_store.h"

namespace grpc {
class ClientContext;
}

namespace poprun {

class CoordinatorClient;
class StateStream;

/// Sends one replica's parts of checkpoints to the launcher, from a thread of its own, and keeps the memory of its one
/// copy from checkpoint to checkpoint.
class LauncherCheckpoints final : public CheckpointStore {
 public:
  /// `every`: steps between two; 0: only those that the launcher asks for. `patience`: for the part before, where the
  /// others wait meanwhile. `client` must outlive this.
  LauncherCheckpoints(CoordinatorClient& client, std::uint64_t every, std::chrono::milliseconds patience)
      : client_(client), every_(every), patience_(patience) {}

  /// Breaks off what is not with the launcher within some seconds.
  ~LauncherCheckpoints() override;

  [[nodiscard]] bool is_due(std::uint64_t step) const override;
  std::optional<std::span<std::byte>> begin(proto::StatePart part, bool is_last) override;
  void send() override;

  /// The step of the last part; 0: there was none.
  [[nodiscard]] std::uint64_t last_step() const { return part_.host().step(); }
  /// Waits until the last part is with the launcher; it is sent again for as long as `patience`. Breaks it off if not
  /// all of its peers come: `last_steps` are what `last_step` returns on all replicas, in any order, once they have
  /// done their last step.
  void settle(std::span<const std::uint64_t> last_steps, std::chrono::seconds patience);

 private:
  void run();
  void abandon();
  void give_up(bool given_up);

  CoordinatorClient& client_;
  std::uint64_t every_;
  std::chrono::milliseconds patience_;
  proto::StatePart part_;
  std::vector<std::byte> bytes_;  ///< The part's.
  std::future<void> sending_;     ///< Reads the two above.
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  bool given_up_ = false;                ///< No further try,
  bool abandoned_ = false;               ///< nor this one.
  grpc::ClientContext* call_ = nullptr;  ///< The try under way.
};

/// Reads the state that the launcher sends to replica 0.
class LauncherState final : public CheckpointSource {
 public:
  /// `client` must outlive this.
  explicit LauncherState(CoordinatorClient& client);
  ~LauncherState() override;

  Status read(const proto::StateVariable& variable, std::span<std::byte> into) override;

 private:
  CoordinatorClient& client_;
  std::unique_ptr<StateStream> stream_;  ///< From the first variable on.
};

}  // namespace poprun
