#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/verdict/job_state.h"

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

}  // namespace poprun::launcher
