#pragma once

#include <compare>
#include <cstdint>

/// Quantities that must never be mixed up. A bare integer in a signature is a count; sizes and device times have their
/// own types, so swapped arguments do not compile. Identifiers are integers that do not convert into one another.
namespace poprun {

/// An integer with a unit. Conversions are explicit: `Bytes{64}`, `size.count()`.
template <typename Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(std::int64_t count) : count_(count) {}

  [[nodiscard]] constexpr std::int64_t count() const { return count_; }

  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity{a.count_ + b.count_}; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity{a.count_ - b.count_}; }
  friend constexpr Quantity operator*(Quantity a, std::int64_t factor) { return Quantity{a.count_ * factor}; }
  constexpr Quantity& operator+=(Quantity other) {
    count_ += other.count_;
    return *this;
  }

 private:
  std::int64_t count_ = 0;
};

using Bytes = Quantity<struct BytesTag>;    ///< Size, or offset in a memory.
using Cycles = Quantity<struct CyclesTag>;  ///< Device time on the tile clock, never wall time.

/// Returns the smallest integer >= a / b. Requires a >= 0, b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Returns the smallest multiple of `alignment` that is >= `size`. Requires alignment > 0.
constexpr Bytes align_up(Bytes size, Bytes alignment) {
  return Bytes{ceil_div(size.count(), alignment.count()) * alignment.count()};
}

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
