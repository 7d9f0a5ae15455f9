#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/metrics/job_metrics.h"
#include "launcher/metrics/training_history.h"

namespace poprun::launcher {

/// The state of a job that the live page shows, at one moment.
struct JobStatus {
  /// A replica's last heartbeat.
  struct Replica {
    std::string host;
    std::uint64_t step = 0;
    std::string activity;     ///< Empty before the first heartbeat.
    double step_seconds = 0;  ///< Wall time in operators per step, in recent steps; 0 if it is unknown.
  };
  struct Message {
    double time = 0;  ///< Unix time.
    std::string text;
  };

  JobMetrics metrics;
  double time = 0;  ///< Unix time of this status.
  std::string model;
  std::optional<double> eta_seconds = {};
  /// Seconds that no part of the goodput contains yet, because the current step or start has not ended.
  double pending_seconds = 0;
  std::vector<Replica> replicas = {};        ///< Indexed by replica.
  std::vector<Message> messages = {};        ///< The launcher's last messages, oldest first.
  const TrainingHistory* history = nullptr;  ///< Null if the job does not train.
};

/// Formats `status` as JSON. Every object has all of its keys, in the same order; the value of a key is null if it is
/// unknown or does not apply to the job. Text that is not UTF-8 is replaced. The answer grows with the number of
/// replicas, by about 100 B for each, but not with the number of steps.
std::string status_json(const JobStatus& status);

}  // namespace poprun::launcher
