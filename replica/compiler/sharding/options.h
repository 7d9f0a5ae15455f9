#pragma once

#include <cstdint>

namespace poprun {

/// Replicated tensor sharding: what is equal on all replicas is divided among them.
struct ShardingOptions {
  bool weights = false;
  bool optimizer_state = false;
  bool accumulators = false;

  std::int64_t elements_min = 8192;  ///< Smaller tensors stay whole: PopART's default.
  std::int64_t group = 0;            ///< Consecutive replicas that have a tensor together; 0: all.

  [[nodiscard]] bool any() const { return weights || optimizer_state || accumulators; }
};

}  // namespace poprun
