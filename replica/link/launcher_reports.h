#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "proto/coordinator.pb.h"
#include "replica/base/error.h"
#include "replica/link/streams_up.h"
#include "replica/ports/outfeed.h"
#include "replica/ports/reporter.h"

namespace poprun {

class CoordinatorClient;

/// Sends replica 0's results to the launcher, in order. After the first failure, which `status` returns, later reports
/// are dropped. Use from one thread.
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

  /// Errors: those of CoordinatorClient::report.
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  CoordinatorClient& client_;
  Status status_;
};

class CoordinatorClient;

/// Sends one replica's outputs to the launcher, each item to its place among all items.
class LauncherOutfeed final : public Outfeed {
 public:
  /// Writes the items of a batch and returns how many of them, from the first on, are not padding.
  using ItemsOf = std::function<std::size_t(std::uint64_t batch, std::span<std::uint64_t> items)>;

  /// `client` must outlive this; `items` is the total of all replicas.
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
