// The end of a job: requests to stop, and the wait for files, processes and disk. Class Job begins in job.cc.
#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include "launcher/job/job.h"
#include "launcher/screen/summary.h"

namespace poprun::launcher {
namespace {

constexpr double kDiskSecondsUntold = 5;
constexpr double kDiskSecondsMax = 600;

}  // namespace

void Job::wait_for_signal() {
  signals_.async_wait([this](const asio::error_code& error, int number) {
    if (!error) {
      on_signal(number);
      wait_for_signal();
    }
  });
}

void Job::on_signal(int number) {
  if (number == SIGUSR1) {
    const bool trains = react(JobEvent::kCheckpointSignal) == Reaction::kTake;
    console_.say(trains ? "SIGUSR1: taking a checkpoint after one of the next steps"
                        : "SIGUSR1: no checkpoint is taken, because the job is not training");
    if (trains) {
      checkpoints_.wish();
    }
    return;
  }
  // When a terminal closes, it sends one SIGHUP, and its shell sends another.
  const bool repeats = number == SIGHUP && signal_ == SIGHUP;
  if (repeats) {
    return;
  }
  const Reaction reaction = react(JobEvent::kEndSignal);
  if (reaction == Reaction::kDrain || reaction == Reaction::kSaveEarly) {
    signal_ = number;
    drain();
  } else if (reaction == Reaction::kEndUntrained) {
    signal_ = number;
    console_.say(fmt::format("SIG{}: ending the {}", sigabbrev_np(number),
                             options_.config.has_check()   ? "check"
                             : options_.config.inference() ? "job; outputs are kept only if they are complete"
                                                           : "job, which has not completed a step yet"));
    stop(128 + number);
  } else if (reaction == Reaction::kEndUnsaved) {
    stop(128 + number);
  } else if (reaction == Reaction::kEndComplete) {
    stop(code_of_results());
  } else if (reaction == Reaction::kKill) {  // mpirun has already had time to clean up.
    processes_->kill();
  } else if (reaction == Reaction::kLeave) {
    end_without_disk();
  }
}

/// Stops the job at its next micro-batch or, in an evaluation, at the next batch, and saves the results.
void Job::drain() {
  deadlines_.draining(world_.now());
  const bool trained = record_.steps() == record_.total_steps();
  const std::string limit = options_.timeouts.drain_seconds > 0
                                ? fmt::format(", in at most {} s (--drain-timeout)", options_.timeouts.drain_seconds)
                                : "";
  console_.say(fmt::format("SIG{}: {}{}; send the signal again to end immediately, without saving the weights",
                           sigabbrev_np(signal_),
                           record_.results().reported() ? "training is done, and the results are being written"
                           : trained ? "training is done; saving the weights without waiting for the evaluation to end"
                                     : "stopping at the next micro-batch and saving the weights",
                           limit));
  coordinator_->request_drain();
}

void Job::end_drain() {
  if (record_.results().complete()) {
    stop(code_of_results());
    return;
  }
  if (const std::optional<Error> failure = record_.results().save_failure()) {
    give_results_up(*failure, " before --drain-timeout expired");
    return;
  }
  console_.say(fmt::format(
      "the job has not stopped within {} s, the limit of --drain-timeout ({}); ending it without saving the weights",
      options_.timeouts.drain_seconds, record_.awaited(state_, world_.now())));
  stop(128 + signal_);
}

void Job::end_at_timeout(double now) {
  end_.may_pass = false;
  if (const std::optional<Error> failure = record_.results().save_failure()) {
    give_results_up(*failure, " before --timeout expired");
    return;
  }
  give_verdict(timeout_verdict(state_, options_.timeouts.job_seconds, record_.how_far(state_), now));
}

/// Returns the exit code for the result of a check. For any other job, returns 128 + the number of the signal that cut
/// the job short, so that scripts can detect this, or 0 if no signal did. Requires: the results are complete.
int Job::code_of_results() const {
  if (options_.config.has_check()) {
    return check_exit_code(record_.results().check());
  }
  return signal_ != 0 && record_.results().profile().outcome().drained() ? 128 + signal_ : 0;
}

void Job::look_after_results(double now) {
  if (record_.results().complete()) {
    deadlines_.results_written();
    if (react(JobEvent::kFilesComplete) == Reaction::kEndComplete) {
      stop(code_of_results());
    }
    return;
  }
  const std::optional<Error> failure = record_.results().save_failure();
  if (!failure) {
    return;
  }
  if (failure->code != ErrorCode::kInfrastructure) {
    give_results_up(*failure, "");
  } else if (deadlines_.no_room(now)) {
    console_.say(fmt::format("{}; {}the job will retry for {} s, then end without these results", failure->message,
                             failure->facts.shortage ? "make room: " : "", Deadlines::kRoomSeconds));
  }
}

/// Gives up on the results. Incomplete files keep their temporary names.
void Job::give_results_up(const Error& error, std::string_view after) {
  end_.may_pass = false;
  console_.say(fmt::format("{}{}; the job ends without these results", error.message, after));
  stop(signal_ == 0 ? exit_code_of(error.code) : 128 + signal_);
}

void Job::stop(int exit_code) {
  react(JobEvent::kOutcome);
  end_.exit_code = exit_code;
  deadlines_.stopping(world_.now());
  if (coordinator_ != nullptr) {
    coordinator_->close();  // mpirun may still start some replicas, which must not join.
  }
  processes_->terminate();
}

void Job::finish() {
  react(JobEvent::kProcessesGone);
  processes_->clear_away();
  record_.close(/*ended_early=*/signal_ != 0, checkpoints_.summary());
  checkpoints_.writer().no_more_metrics();
  const auto end_loop = [this] { record_.when_written([this] { loop_.stop(); }); };
  wait_for_disk(kDiskSecondsUntold);
  if (coordinator_ == nullptr) {
    end_loop();
  } else {
    coordinator_->stop(end_loop);
  }
}

/// Names what is still being written.
std::string Job::unwritten() const {
  return record_.is_writing() ? fmt::format("the files in {}", options_.output.dir)
                              : fmt::format("the checkpoint in {}", options_.checkpoints.dir);
}

/// Waits for the disk if something is still being written. The disk may hang, and a write cannot be cancelled.
void Job::wait_for_disk(double seconds) {
  end_alarm_->set(seconds, [this] {
    if (react(JobEvent::kDiskTime) == Reaction::kLeave) {
      return end_without_disk();
    }
    console_.say(
        fmt::format("the job has ended, but {} could not be written yet; waiting for the disk for up to {} s, or until "
                    "the next signal",
                    unwritten(), kDiskSecondsMax));
    wait_for_disk(kDiskSecondsMax);
  });
}

void Job::end_without_disk() {
  console_.say(fmt::format("ending before {} could be written", unwritten()));
  console_.settle();
  world_.leave(end_.exit_code);
}

}  // namespace poprun::launcher
