#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/verdict/job_state.h"
#include "proto/coordinator.pb.h"

namespace poprun::launcher {

/// Watches replicas that wait for the data server. Each of them gives up on its own if the server neither answers nor
/// makes progress with the dataset for `limit_seconds`. Until then, replicas that wait in an exchange for such a
/// replica are exempt from their own, shorter deadline, and the user is informed. This class only keeps records.
class DataWaits {
 public:
  /// `address` is the address of the data server.
  DataWaits(std::string address, double limit_seconds) : address_(std::move(address)), limit_seconds_(limit_seconds) {}

  /// Returns whether a replica has waited for data long enough to delay others, and no replica has exceeded its limit.
  [[nodiscard]] bool excuse(const JobState& state) const;

  /// Returns the message that the user should see now, if any. While replicas wait, there is an early message and then
  /// one per minute. When the server has recovered, a last message says so, unless a replica has given up by then: its
  /// failure explains enough.
  std::optional<std::string> news(const JobState& state);

 private:
  std::string address_;
  double limit_seconds_;
  double told_seconds_ = 0;             ///< Length of the wait that has been reported to the user; 0: none.
  double last_note_ = 0;                ///< Length of the wait that the last message stated.
  std::vector<std::uint32_t> waiting_;  ///< Replicas last seen waiting.
};

struct Straggler {
  std::uint32_t replica = 0;
  std::uint32_t others = 0;     ///< Number of other replicas that take at least kFactor times the usual time.
  double seconds_per_step = 0;  ///< Wall time in operators.
  double usual_seconds = 0;     ///< Median over the other replicas.
  std::uint64_t steps = 0;      ///< Number of steps over which the replica was slow.
};

/// Uses the times in the heartbeats to find the replica that all others wait for. This class only keeps records. A busy
/// machine slows down every replica in turn. A replica is therefore named only if it is the slowest, by a clear factor,
/// in three consecutive intervals ("stretches"), each of many steps and several seconds.
class Stragglers {
 public:
  /// The slowest replica counts as a straggler if it takes at least this many times the usual time.
  static constexpr double kFactor = 1.5;
  static constexpr std::uint64_t kStretchSteps = 10;
  static constexpr double kStretchSeconds = 3;  ///< Seconds in operators.
  static constexpr int kStretches = 3;

  explicit Stragglers(std::uint32_t replicas) : now_(replicas), mark_(replicas) {}

  void beat(const proto::Beat& beat);

  /// Returns the first straggler, once. Call this often, since it also ends stretches.
  std::optional<Straggler> found();
  /// Does the same as `found`, but returns the message about the straggler instead of the straggler itself.
  std::optional<std::string> news(const JobState& state);

  /// Returns the slowest replica of the last stretch, however small its lag is. Returns nothing before the first
  /// stretch ends, or if there is only one replica.
  [[nodiscard]] const std::optional<Straggler>& slowest() const { return slowest_; }
  /// Returns for each replica the wall seconds in operators per step, in the last stretch or, before the first one
  /// ends, so far; 0 if the replica has not completed a step.
  [[nodiscard]] std::vector<double> step_seconds() const { return rates_.empty() ? rates() : rates_; }

 private:
  struct Times {
    std::uint64_t steps = 0;
    double seconds = 0;
  };

  /// Returns the seconds per step since the marks.
  [[nodiscard]] std::vector<double> rates() const;
  /// Returns the slowest replica since the marks. Requires: two or more replicas, each with a step since its mark.
  [[nodiscard]] Straggler slowest_of_stretch() const;

  std::vector<Times> now_;     ///< Indexed by replica.
  std::vector<Times> mark_;    ///< Times at the start of the stretch.
  std::vector<double> rates_;  ///< In the last stretch; empty before its end.
  std::optional<Straggler> slowest_;
  std::optional<Straggler> suspect_;  ///< The slowest replica, if it exceeds the factor.
  int stretches_ = 0;                 ///< Number of consecutive stretches with this suspect.
  bool told_ = false;
};

}  // namespace poprun::launcher
