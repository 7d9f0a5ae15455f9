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

namespace poprun {

class CoordinatorClient;
class StateStream;

/// Sends one replica's parts of checkpoints to the launcher, from a thread of its own, and keeps
/// the memory of its one copy from checkpoint to checkpoint.
class LauncherCheckpoints final : public CheckpointStore {
 public:
  /// `every`: steps between two; 0: only those that the launcher asks for. `patience`: for the part
  /// before, where the others wait meanwhile. `client` must outlive this.
  LauncherCheckpoints(CoordinatorClient& client, std::uint64_t every,
                      std::chrono::milliseconds patience)
      : client_(client), every_(every), patience_(patience) {}

  /// Gives up what the disk does not take.
  ~LauncherCheckpoints() override { settle(std::chrono::seconds(0)); }

  [[nodiscard]] bool is_due(std::uint64_t step) const override;
  std::optional<std::span<std::byte>> begin(proto::StatePart part, bool is_last) override;
  void send() override;

  /// Waits until the last part is with the launcher; it is sent again for as long as `patience`.
  void settle(std::chrono::seconds patience);

 private:
  void run();
  void give_up(bool given_up);

  CoordinatorClient& client_;
  std::uint64_t every_;
  std::chrono::milliseconds patience_;
  proto::StatePart part_;
  std::vector<std::byte> bytes_;  ///< The part's.
  std::future<void> sending_;     ///< Reads the two above.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool given_up_ = false;  ///< Guarded by mutex_: no further try.
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
