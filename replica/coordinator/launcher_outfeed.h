#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "replica/ports/outfeed.h"

namespace poprun {

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
