#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

namespace poprun::launcher {

/// One of a limited number of concurrent calls, counted as long as this object lives.
///
/// Threads: any.
class Seat {
 public:
  /// Returns nothing if `most` are taken. `taken` must outlive the seat.
  static std::optional<Seat> take(std::atomic<std::uint32_t>& taken, std::uint32_t most) {
    if (++taken > most) {
      --taken;
      return std::nullopt;
    }
    return Seat(taken);
  }

  Seat(Seat&& other) noexcept : taken_(std::exchange(other.taken_, nullptr)) {}
  Seat& operator=(Seat&& other) = delete;
  ~Seat() {
    if (taken_ != nullptr) {
      --*taken_;
    }
  }

 private:
  explicit Seat(std::atomic<std::uint32_t>& taken) : taken_(&taken) {}

  std::atomic<std::uint32_t>* taken_;  ///< Null once moved from.
};

}  // namespace poprun::launcher
