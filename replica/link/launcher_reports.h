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

/// Tells the launcher replica 0's results, in order. The first report that fails sticks, and later ones are dropped:
/// `status` tells. Belongs to one thread.
class LauncherReporter final : public Reporter {
 public:
  /// `client` must outlive this.
  explicit LauncherReporter(CoordinatorClient& client) : client_(client) {}

  void step(const StepReport& report) override;
  void evaluation(const EvaluationReport& report) override;
  void note(std::string_view text) override;
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
  /// Writes the items of a batch and returns how many are not padding, the first ones.
  using ItemsOf = std::function<std::size_t(std::uint64_t batch, std::span<std::uint64_t> items)>;

  /// `client` must outlive this; `items` is the number of all replicas' together.
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
