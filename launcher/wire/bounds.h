#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "proto/coordinator.pb.h"
#include "replica/base/error.h"

/// Functions that bound what the launcher accepts. Invalid messages, which may come from an instance that is broken or
/// runs a different version, are rejected, so that the rest of the launcher can rely on sizes and numbers.
namespace poprun::launcher {

struct JobSize {
  std::uint32_t instances = 4096;
  std::uint32_t replicas_per_instance = 1;
};

// Each of these functions checks a message. Errors: kUsage; the error says what is wrong. Names and addresses are
// limited to 255 B, a replica's activity to 4 KiB, and its last message to 1 MiB. Lists are limited to the lengths that
// are possible in a job of this size, and tensors to 2^56 elements. Times must be finite and not negative.
Status check_bounds(const proto::JoinRequest& request, const JobSize& job);
Status check_bounds(const proto::Beat& beat, const JobSize& job);
Status check_bounds(const proto::Failure& failure, const JobSize& job);
Status check_bounds(const proto::ReportItem& item, const JobSize& job);
/// Also checks that the part has at most 65,536 variables and 65,536 slices, all within the variables.
Status check_bounds(const proto::StatePart& part, const JobSize& job);

/// Reserves one of a limited number of concurrent calls for as long as this object exists. Threads: any.
class Seat {
 public:
  /// Takes a seat, or returns nothing if `most` seats are already taken. `taken` must outlive the seat.
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

  std::atomic<std::uint32_t>* taken_;  ///< Null after a move.
};

}  // namespace poprun::launcher
