#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "proto/coordinator.pb.h"
#include "replica/base/error.h"
#include "replica/ports/checkpoint_store.h"
#include "replica/ports/reporter.h"

namespace grpc {
class ClientContext;
}

/// Implements the interfaces of replica/ports over the connection to the launcher.
namespace poprun {

class CoordinatorClient;
class StateStream;

/// Sends one replica's parts of checkpoints to the launcher from a separate thread. It keeps one copy of the state, in
/// memory that is reused for all checkpoints.
class LauncherCheckpoints final : public CheckpointStore {
 public:
  /// `every` is the number of steps between checkpoints; if it is 0, they are taken only when the launcher asks for
  /// one. `patience` limits the wait for the previous part, during which the other replicas wait, too. `client` must
  /// outlive this.
  LauncherCheckpoints(CoordinatorClient& client, std::uint64_t every, std::chrono::milliseconds patience)
      : client_(client), every_(every), patience_(patience) {}

  /// Aborts the transfer if it does not finish within a few seconds.
  ~LauncherCheckpoints() override;

  [[nodiscard]] bool is_due(std::uint64_t step) const override;
  std::optional<std::span<std::byte>> begin(proto::StatePart part, bool is_last) override;
  void send() override;

  /// Returns the step of the last part, or 0 if there was none.
  [[nodiscard]] std::uint64_t last_step() const { return part_.host().step(); }
  /// Waits until the launcher has received the last part, with retries for up to `patience`. Aborts the transfer if
  /// other replicas do not send their parts. `last_steps` are the results of `last_step` on all replicas, in any order,
  /// after their last step.
  void settle(std::span<const std::uint64_t> last_steps, std::chrono::seconds patience);

 private:
  void run();
  void abandon();
  void give_up(bool given_up);

  CoordinatorClient& client_;
  std::uint64_t every_;
  std::chrono::milliseconds patience_;
  proto::StatePart part_;
  std::vector<std::byte> bytes_;  ///< Bytes of part_.
  std::future<void> sending_;     ///< The sending task, which reads part_ and bytes_.
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  bool given_up_ = false;                ///< Whether to stop repeating failed attempts.
  bool abandoned_ = false;               ///< Whether to abort the current attempt, too.
  grpc::ClientContext* call_ = nullptr;  ///< The current attempt.
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
  std::unique_ptr<StateStream> stream_;  ///< Set by the first variable.
};

/// Sends replica 0's results to the launcher, in order, from one thread. After a failure (`status`), it drops reports.
class LauncherReporter final : public Reporter {
 public:
  /// `client` must outlive this.
  explicit LauncherReporter(CoordinatorClient& client) : client_(client) {}

  void step(const StepReport& report) override;
  void evaluation(const EvaluationReport& report) override;
  void note(const proto::Note& note) override;
  void weights(std::string_view name, std::string_view type, std::span<const std::int64_t> shape,
               std::span<const std::byte> data) override;

  void dump(std::uint64_t step, std::string_view name, std::string_view type, std::span<const std::int64_t> shape,
            std::span<const std::byte> data) override;

  void send(proto::ReportItem item);

  /// Returns success or the first failure of CoordinatorClient::report.
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  CoordinatorClient& client_;
  Status status_;
};

/// Sends one replica's outputs to the launcher, each with the position of its item among all items.
class LauncherOutfeed final : public Outfeed {
 public:
  /// Writes the items of a batch and returns how many of them are not padding; padding comes last.
  using ItemsOf = std::function<std::size_t(std::uint64_t batch, std::span<std::uint64_t> items)>;

  /// `client` must outlive this; `items` is the total number of items of all replicas.
  LauncherOutfeed(CoordinatorClient& client, ItemsOf items_of, std::uint64_t items)
      : client_(client), items_of_(std::move(items_of)), items_(items) {}

  Status push(std::uint64_t batch, std::string_view type, std::span<const std::int64_t> shape,
              std::span<const std::byte> data) override;

 private:
  CoordinatorClient& client_;
  ItemsOf items_of_;
  std::uint64_t items_;
};

}  // namespace poprun
