#include "launcher/verdict/deadlines.h"

#include <algorithm>
#include <utility>

#include "replica/base/error.h"

namespace poprun::launcher {
namespace {

constexpr double kLookSeconds = 0.1;
constexpr double kHoldSeconds = 2;       // How long mpirun's lines are held, in case a failure follows them.
constexpr double kOversleptSeconds = 1;  // After a longer time between wake-ups, the launcher was suspended.
constexpr double kToldSeconds = 4;       // Longest suspension of the launcher that is not reported.
constexpr double kLostTouchSeconds = 5;  // mpirun reports the reason after about 2 s, and then exits.
constexpr double kOneSideSeconds = 0.5;
constexpr double kQuietSeconds = 4;  // Plus two heartbeat intervals; load alone never delays heartbeats for that long.
constexpr double kStopSeconds = 1.5;
constexpr double kStopSecondsMax = 4;

double patience(Deadlines::Trouble kind) {
  switch (kind) {
    case Deadlines::Trouble::kCause:
      return 0;
    case Deadlines::Trouble::kOneSide:
      return kOneSideSeconds;
    case Deadlines::Trouble::kDumps:
      return Deadlines::kDumpSeconds;
    case Deadlines::Trouble::kLostTouch:
      return kLostTouchSeconds;
  }
  return 0;
}

}  // namespace

Deadlines::Deadlines(const Limits& limits, double launched_at)
    : limits_(limits), launched_at_(launched_at), started_at_(launched_at), woke_at_(launched_at) {}

Deadlines::Trouble Deadlines::trouble_of_failure(std::uint32_t exit_code, bool dumps_may_come) {
  const auto is = [exit_code](ErrorCode code) { return exit_code == static_cast<std::uint32_t>(exit_code_of(code)); };
  if (is(ErrorCode::kInfrastructure) || is(ErrorCode::kBug)) {
    return Trouble::kOneSide;
  }
  // If a NaN or infinity ends a step, replica 0 also ends or waits at that step, but first sends its dumps of the step.
  // No instance exits before the verdict.
  return is(ErrorCode::kData) && dumps_may_come ? Trouble::kDumps : Trouble::kCause;
}

void Deadlines::trouble(Trouble kind, double now) {
  const double at = now + patience(kind);
  judge_at_ = std::min(judge_at_.value_or(at), at);
  awaits_dumps_ = awaits_dumps_ || kind == Trouble::kDumps;
}

void Deadlines::dump_came(double now) {
  if (judge_at_ && awaits_dumps_) {
    judge_at_ = now + kDumpSeconds;
  }
}

bool Deadlines::no_room(double now) {
  const bool is_first = !no_room_at_;
  no_room_at_ = no_room_at_.value_or(now);
  return is_first;
}

Deadlines::Slept Deadlines::woke(double now) {
  const double seconds = now - std::exchange(woke_at_, now);
  const bool overslept = seconds > kOversleptSeconds;
  if (joined_at_ && overslept) {
    joined_at_ = now;
  }
  return {.seconds = seconds, .excuses_silence = overslept, .is_worth_telling = seconds > kToldSeconds};
}

std::vector<Deadlines::Timer> Deadlines::timers(const Facts& facts) const {
  if (stopping_since_) {
    const double patience = facts.processes_run ? kStopSecondsMax : 0;
    return {{Due::kFinish, *stopping_since_ + patience}, {Due::kKill, *stopping_since_ + kStopSeconds}};
  }
  std::vector<Timer> timers;
  if (judge_at_) {
    timers.push_back({Due::kVerdict, *judge_at_});
  } else if (facts.oldest_heartbeat) {
    timers.push_back({Due::kSilence, *facts.oldest_heartbeat + limits_.heartbeat_timeout});
  }
  if (facts.joining) {
    const double at = started_at_ + limits_.join_timeout;
    timers.push_back({Due::kAbsence, std::min(at, joined_at_.value_or(at) + limits_.heartbeat_timeout)});
  }
  if (facts.done) {
    timers.push_back({Due::kMpirunEnd, left_at_ + limits_.heartbeat_timeout});
  }
  if (drained_at_ && limits_.drain_timeout > 0) {
    timers.push_back({Due::kDrainEnd, *drained_at_ + limits_.drain_timeout});
  }
  if (no_room_at_) {
    timers.push_back({Due::kRoomEnd, *no_room_at_ + kRoomSeconds});
  }
  if (limits_.job_timeout > 0) {
    timers.push_back({Due::kJobTimeout, launched_at_ + limits_.job_timeout});
  }
  return timers;
}

Deadlines::Due Deadlines::due(const Facts& facts, double now) const {
  for (const auto& [what, at] : timers(facts)) {
    if (now >= at) {
      return what;
    }
  }
  return Due::kNothing;
}

bool Deadlines::shows_mpirun_lines(double now) const {
  return !judge_at_ && now >= line_held_at_ + kHoldSeconds;
}

double Deadlines::next(const Facts& facts, double now) const {
  double next = now + kLookSeconds;
  for (const auto& [what, at] : timers(facts)) {
    next = at > now ? std::min(next, at) : next;
  }
  return next;
}

double Deadlines::quiet_seconds() const {
  return kQuietSeconds + 2 * limits_.heartbeat_interval;
}

}  // namespace poprun::launcher
