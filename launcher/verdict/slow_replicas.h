#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/verdict/job_state.h"
#include "proto/coordinator.pb.h"

namespace poprun::launcher {

/// Watches replicas that wait for the data server. Each of them gives up by itself after
/// `limit_seconds` in which the server neither answers nor makes progress with the dataset; until
/// then those that wait for such a replica in an exchange are excused from
/// their own, shorter deadline, and the user is told. Pure bookkeeping.
class DataWaits {
 public:
  /// `address` of the data server.
  DataWaits(std::string address, double limit_seconds)
      : address_(std::move(address)), limit_seconds_(limit_seconds) {}

  /// Whether somebody waits for long enough to keep others waiting, and not longer than it may.
  [[nodiscard]] bool excuse(const JobState& state) const;

  /// What the user should know now: that replicas wait, soon and then once a minute, and that the
  /// server answers again. Nothing where one of them gave up: its failure says it all.
  std::optional<std::string> news(const JobState& state);

 private:
  std::string address_;
  double limit_seconds_;
  double told_seconds_ = 0;  ///< How long it has been waited, where the user knows of it; else 0.
  double last_note_ = 0;     ///< What was said last.
  std::vector<std::uint32_t> waiting_;  ///< Replicas, while any waits for long.
};

/// A replica that computes more slowly than the others.
struct Straggler {
  std::uint32_t replica = 0;
  std::uint32_t others = 0;     ///< Further replicas that are beyond the factor, too.
  double seconds_per_step = 0;  ///< Wall, in operators.
  double usual_seconds = 0;     ///< Median of the other replicas.
  std::uint64_t steps = 0;      ///< Over which it was seen.
};

/// Finds the replica that all others wait for, from the times that heartbeats bring. Pure
/// bookkeeping.
///
/// A busy machine slows everybody down in turn: only who is slowest in three stretches in a row,
/// each of many steps and some seconds, and by a clear factor, is named.
class Stragglers {
 public:
  /// The slowest needs this many times what is usual.
  static constexpr double kFactor = 1.5;
  static constexpr std::uint64_t kStretchSteps = 10;
  static constexpr double kStretchSeconds = 3;  ///< In operators.
  static constexpr int kStretches = 3;

  explicit Stragglers(std::uint32_t replicas) : now_(replicas), mark_(replicas) {}

  void beat(const proto::Beat& beat);

  /// The first one that is found, once. To be called often: it ends stretches.
  std::optional<Straggler> found();

  /// Whoever was slowest in the last stretch, by whatever factor; nothing before its end, and of
  /// one replica.
  [[nodiscard]] const std::optional<Straggler>& slowest() const { return slowest_; }

 private:
  struct Times {
    std::uint64_t steps = 0;
    double seconds = 0;
  };

  /// Requires: two replicas or more, each with a step since its mark.
  [[nodiscard]] Straggler slowest_of_stretch() const;

  std::vector<Times> now_;   ///< By replica.
  std::vector<Times> mark_;  ///< Where the stretch began.
  std::optional<Straggler> slowest_;
  std::optional<Straggler> suspect_;  ///< The slowest, where it is beyond the factor.
  int stretches_ = 0;                 ///< In a row, of the suspect.
  bool told_ = false;
};

}  // namespace poprun::launcher
