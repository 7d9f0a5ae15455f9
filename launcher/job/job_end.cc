// The end of a job: requests to stop, and the wait for its files; job.cc has the rest of the class.
#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "launcher/job/job.h"
#include "launcher/screen/summary.h"

namespace poprun::launcher {

void Job::on_signal(int number) {
  if (number == SIGUSR1) {
    const bool trains = record_.steps() > 0 && phase_ == Phase::kRunning;
    console_.say(trains ? "SIGUSR1: taking a checkpoint after one of the next steps"
                        : "SIGUSR1: no checkpoint: the job is not training now");
    if (trains) {
      checkpoints_.wish();
    }
    return;
  }
  // A closing terminal sends one SIGHUP, and its shell another.
  const bool repeats = number == SIGHUP && signal_ == SIGHUP;
  if (repeats) {
    return;
  }
  if (phase_ == Phase::kOver) {
    return waits_for_disk_ ? end_without_disk() : void();
  }
  if (record_.results().complete() && !ending()) {
    stop(code_of_results(), /*at_once=*/false);
    return;
  }
  if (signal_ != 0 || phase_ != Phase::kRunning) {
    // mpirun gets the time that it needs to clean up, but only once.
    const bool stopping = phase_ == Phase::kStopping;
    stop(stopping ? exit_code_ : 128 + number, /*at_once=*/stopping);
    return;
  }
  signal_ = number;
  if (record_.steps() == 0 && !record_.results().reported()) {
    console_.say(fmt::format("SIG{}: ending the {}", sigabbrev_np(number),
                             options_.config.has_check()   ? "check"
                             : options_.config.inference() ? "job; outputs are kept only if they are complete"
                                                           : "job, which has not completed a step yet"));
    stop(128 + number, false);
    return;
  }
  drain(number);
}

/// Stops the job at its next micro-batch, or batch of an evaluation, and saves.
void Job::drain(int number) {
  phase_ = Phase::kDraining;
  deadlines_.draining(monotonic_seconds());
  needs_nobody_ = record_.results().reported();
  const bool trained = record_.steps() == record_.total_steps();
  const std::string limit = options_.drain_timeout_seconds > 0
                                ? fmt::format(", {} s at most (--drain-timeout)", options_.drain_timeout_seconds)
                                : "";
  console_.say(fmt::format("SIG{}: {}{}; send it again to end at once, without the weights", sigabbrev_np(number),
                           needs_nobody_ ? "the training is done, and its results are being written"
                           : trained
                               ? "the training is done; saving its weights, without waiting for an evaluation to end"
                               : "stopping at the next micro-batch and saving the weights",
                           limit));
  coordinator_->request_drain();
}

void Job::tell_where_to_stop() {
  if (phase_ != Phase::kDraining || stop_told_) {
    return;
  }
  if (const std::optional<std::uint64_t> last_part = drain_point_.last_part()) {
    stop_told_ = true;
    coordinator_->stop_after(*last_part);
  }
}

/// Returns the exit code for a check's result or, if a signal cut the job short, the code for this signal, so that a
/// script can tell; else 0. Requires: the results are complete.
int Job::code_of_results() const {
  if (options_.config.has_check()) {
    return check_exit_code(record_.results().check());
  }
  return signal_ != 0 && record_.results().profile().outcome().drained() ? 128 + signal_ : 0;
}

void Job::end_drain() {
  if (record_.results().complete()) {
    stop(code_of_results(), /*at_once=*/false);
    return;
  }
  if (const std::optional<Error> failure = record_.results().save_failure()) {
    give_results_up(*failure, " before --drain-timeout expired");
    return;
  }
  console_.say(fmt::format(
      "the job has not stopped within {} s, the limit of --drain-timeout ({}); ending it without its weights",
      options_.drain_timeout_seconds, doing_now(monotonic_seconds())));
  stop(128 + signal_, /*at_once=*/false);
}

/// Returns what a draining job waits for. Replica 0 stands for all: the others stop with it, and it saves the results.
std::string Job::doing_now(double now) const {
  if (record_.results().reported()) {
    return "writing the results";
  }
  const ReplicaView& first = state_.instances()[0].replicas[0];
  return fmt::format("replica 0: {} for {:.0f} s", first.activity.empty() ? "computing" : first.activity,
                     std::max(0.0, now - first.since));
}

/// Ignores all further trouble, since processes are no longer needed.
void Job::wait_for_files_alone() {
  needs_nobody_ = true;
  look_after_results(monotonic_seconds());
}

void Job::look_after_results(double now) {
  if (ending()) {
    return;
  }
  if (record_.results().complete()) {
    deadlines_.results_written();
    if (needs_nobody_) {
      stop(code_of_results(), /*at_once=*/false);
    }
    return;
  }
  const std::optional<Error> failure = record_.results().save_failure();
  if (!failure) {
    return;
  }
  if (failure->code != ErrorCode::kInfrastructure) {
    give_results_up(*failure, "");
  } else if (!std::exchange(no_room_told_, true)) {
    deadlines_.no_room(now);
    console_.say(fmt::format("{}; {}the job tries again for {} s, then ends without it", failure->message,
                             failure->facts.shortage ? "make room: " : "", Deadlines::kRoomSeconds));
  }
}

/// Gives up on the results. Only complete files have their final names.
void Job::give_results_up(const Error& error, std::string_view after) {
  is_final_ = true;
  console_.say(fmt::format("{}{}; the job ends without it", error.message, after));
  stop(signal_ == 0 ? exit_code_of(error.code) : 128 + signal_, /*at_once=*/false);
}

}  // namespace poprun::launcher
