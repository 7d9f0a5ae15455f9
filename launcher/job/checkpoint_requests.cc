#include "launcher/job/checkpoint_requests.h"

#include <algorithm>
#include <cmath>

namespace poprun::launcher {
namespace {

constexpr double kNoticeSeconds = 2;  // Time for a request to reach every replica.
constexpr double kLateSeconds = 5;    // After that, a replica received it too late.

}  // namespace

/// Estimates the number of steps from the speed since the first step.
double CheckpointRequests::steps_in(double seconds, std::uint64_t step, double now) {
  if (!first_) {
    first_ = Mark{step, now};
  }
  const double elapsed = now - first_->at;
  return elapsed > 0 ? static_cast<double>(step - first_->step) / elapsed * seconds : 0;
}

std::optional<std::uint64_t> CheckpointRequests::due(std::uint64_t step, std::uint64_t steps, std::uint64_t begun,
                                                     double now) {
  const double notice = steps_in(kNoticeSeconds, step, now);
  if (every_seconds_ > 0) {
    due_at_ = due_at_.value_or(now + every_seconds_);
    if (now >= *due_at_) {
      due_at_ = now + every_seconds_;
      wished_ = true;
    }
  }
  const bool missed = request_ && begun < request_->first_step && step > request_->last_step &&
                      now - request_->asked_at > kNoticeSeconds + kLateSeconds;
  if (request_ ? !missed : !wished_) {
    return std::nullopt;
  }
  const std::uint64_t after = std::min(steps, step + 1 + static_cast<std::uint64_t>(std::ceil(notice)));
  if (!request_) {
    wished_ = false;
    request_ = Request{.first_step = after};
  }
  request_->last_step = after;
  request_->asked_at = now;
  return after;
}

bool CheckpointRequests::came(std::uint64_t step) {
  const bool answers = request_ && step >= request_->first_step;
  if (answers) {
    request_.reset();
  }
  return answers;
}

}  // namespace poprun::launcher
