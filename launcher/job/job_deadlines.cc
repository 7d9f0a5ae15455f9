// The deadlines of a job (launcher/verdict/deadlines.h); job.cc has the rest of the class.
#include <chrono>

#include <fmt/format.h>

#include "launcher/job/job.h"
#include "replica/base/text.h"

namespace poprun::launcher {

void Job::wait_for_deadline() {
  const double now = monotonic_seconds();
  const std::chrono::duration<double> wait(deadlines_.next(facts(), now) - now);
  timer_.expires_after(std::chrono::ceil<std::chrono::steady_clock::duration>(wait));
  timer_.async_wait([this](const asio::error_code& error) {
    if (!error && phase_ != Phase::kOver) {
      wake();
      wait_for_deadline();
    }
  });
}

Deadlines::Facts Job::facts() const {
  return {.joining = dataset_known_ && !state_.all_joined(),
          .done = record_.results().complete() && state_.all_left(),
          .processes_run = processes_.any_run(),
          .oldest_heartbeat = needs_nobody_ ? std::nullopt : state_.oldest_heartbeat()};
}

/// Excuses heartbeats that are late only because the launcher was suspended.
void Job::notice_own_silence(double now) {
  const Deadlines::Slept slept = deadlines_.woke(now);
  if (slept.excuses_silence) {
    state_.forgive_silence(now);
  }
  if (slept.is_worth_telling) {
    console_.say(
        fmt::format("note: poprun-emu itself did not run for {:.0f} s (it was stopped, or the machine slept); replicas "
                    "assume that a launcher silent for too long has died",
                    slept.seconds));
  }
}

void Job::wake() {
  const double now = monotonic_seconds();
  notice_own_silence(now);
  if (phase_ != Phase::kStopping) {
    if (phase_ == Phase::kDraining) {
      record_.tell_stopping(doing_now(now), now);
    }
    record_.refresh(now);
    checkpoints_.writer().hold_metrics(record_.results().metrics_wait());
    look_after_results(now);
    request_checkpoint(now);
    tell_of_straggler();
    if (const auto news = data_waits_ ? data_waits_->news(state_) : std::nullopt) {
      console_.say(*news);
    }
    // mpirun's messages about a failure may arrive before any other sign of it, so they wait for the root cause.
    if (deadlines_.shows_mpirun_lines(now)) {
      record_.mpirun_output().release_mpirun_lines();
    }
  }
  do_what_is_due(now);
}

void Job::request_checkpoint(double now) {
  if (phase_ != Phase::kRunning || record_.steps() == 0 || record_.results().reported()) {
    return;
  }
  if (const auto step = checkpoints_.due(state_.step(), record_.total_steps(), now)) {
    coordinator_->request_checkpoint(*step);
  }
}

void Job::do_what_is_due(double now) {
  switch (deadlines_.due(facts(), now)) {
    case Deadlines::Due::kNothing:
      return;
    case Deadlines::Due::kVerdict:
      return decide();
    case Deadlines::Due::kSilence:
      // Instances of one host fall silent together, but not at the same moment.
      return give_verdict(silence_verdict(state_, state_.silent(now, options_.heartbeat_timeout_seconds / 2), now));
    case Deadlines::Due::kAbsence:
      state_.end_joining();
      return give_verdict(absence_verdict(state_, deadlines_.seconds_since_start(now), address()));
    case Deadlines::Due::kMpirunEnd:
      console_.say(fmt::format("the job is done, but mpirun is still running after {} s; ending it",
                               options_.heartbeat_timeout_seconds));
      return stop(code_of_results(), /*at_once=*/false);
    case Deadlines::Due::kDrainEnd:
      return end_drain();
    case Deadlines::Due::kRoomEnd:
      return give_results_up(*record_.results().save_failure(),
                             fmt::format(" (tried for {} s)", Deadlines::kRoomSeconds));
    case Deadlines::Due::kJobTimeout:
      return end_at_timeout(now);
    case Deadlines::Due::kKill:
      return processes_.kill();
    case Deadlines::Due::kFinish:
      return finish();
  }
}

void Job::end_at_timeout(double now) {
  is_final_ = true;
  if (const std::optional<Error> failure = record_.results().save_failure()) {
    give_results_up(*failure, " before --timeout expired");
    return;
  }
  give_verdict(timeout_verdict(state_, options_.timeout_seconds, how_far(), now));
}

/// Returns the job's progress so far, as a clause that follows "it".
std::string Job::how_far() const {
  if (options_.config.has_check()) {
    const proto::CheckReport& check = record_.results().check();
    const std::uint32_t runs = check.plan().runs();
    return runs == 0 ? "had not finished planning"
                     : fmt::format("had finished {} of {}", check.runs_size(), counted(runs, "run"));
  }
  return state_.step() == 0
             ? "had not completed a step"
             : fmt::format("was at step {} of {} at its last heartbeats", state_.step(), record_.total_steps());
}

void Job::tell_of_straggler() {
  const std::optional<Straggler> found = stragglers_.found();
  if (!found) {
    return;
  }
  const std::uint32_t instance = found->replica / placement_.replicas_per_instance();
  const std::string others = found->others > 0 ? fmt::format(", as are {}", counted(found->others, "other")) : "";
  console_.say(
      fmt::format("note: replica {} (host {}) is {:.1f} times as slow as the median of the others{}: {} against {} in "
                  "operators per step, over {} steps; all replicas wait for it at each exchange",
                  found->replica, state_.instances()[instance].host, found->seconds_per_step / found->usual_seconds,
                  others, duration_text(found->seconds_per_step), duration_text(found->usual_seconds), found->steps));
}

}  // namespace poprun::launcher
