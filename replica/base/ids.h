#pragma once

#include <cstdint>

/// Names of things, as integers that do not convert into one another.
namespace poprun {

/// A tensor's identity within one graph or Program. Dense: N tensors use 0..N-1.
enum class TensorId : std::uint32_t {};

/// A replica's position in the job, 0..replicas-1.
enum class ReplicaId : std::uint32_t {};

constexpr std::uint32_t index_of(TensorId id) {
  return static_cast<std::uint32_t>(id);
}
constexpr std::uint32_t index_of(ReplicaId id) {
  return static_cast<std::uint32_t>(id);
}

}  // namespace poprun
