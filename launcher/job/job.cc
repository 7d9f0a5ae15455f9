#include "launcher/job/job.h"

#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "launcher/process/process_handle.h"
#include "launcher/verdict/replica_words.h"
#include "replica/base/rare.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

Deadlines::Limits limits_of(const Options& options) {
  return {.heartbeat_interval = options.timeouts.heartbeat_interval_seconds,
          .heartbeat_timeout = options.timeouts.heartbeat_seconds,
          .join_timeout = static_cast<double>(options.timeouts.collective_seconds),
          .job_timeout = options.timeouts.job_seconds,
          .drain_timeout = options.timeouts.drain_seconds};
}

}  // namespace

Job::Job(World& world, const Options& options, const Placement& placement, Console& console, JobHistory& history,
         double launched_at)
    : world_(world),
      options_(options),
      placement_(placement),
      console_(console),
      own_address_(own_address(placement)),
      launched_at_(launched_at),
      history_(history),
      signals_(loop_, SIGUSR1),
      alarm_(world.alarm(loop_)),
      end_alarm_(world.alarm(loop_)),
      processes_(world.processes(
          loop_, options, placement, console, security_,
          {.on_mpirun_line = [this](std::string_view line, bool is_stderr) { on_mpirun_line(line, is_stderr); },
           .on_mpirun_exit = [this](int status) { on_mpirun_exit(status); },
           .on_dataset = [this](const auto& served) { on_dataset(served); },
           .on_data_server_exit = [this](int status) { on_data_server_exit(status); }})),
      state_(placement, launched_at, options.hosts.cpu_isa),
      deadlines_(limits_of(options), launched_at),
      drain_point_(placement.num_instances),
      stragglers_(placement.num_replicas),
      record_(world, options, placement, console, history.folder),
      checkpoints_(world, loop_, options, console) {
  for (const int number : ending_signals()) {
    signals_.add(number);
  }
}

JobEnd Job::run() {
  wait_for_signal();
  wait_for_deadline();
  const Status started = prepare();
  deadlines_.started(world_.now());
  if (!started) {
    give_error(started.error());
  }
  world_.run(loop_);
  end_.may_pass = end_.may_pass && signal_ == 0 &&
                  (end_.exit_code == exit_code_of(ErrorCode::kInfrastructure) ||
                   end_.exit_code == exit_code_of(ErrorCode::kUnreachable));
  history_.checkpoints += checkpoints_.stored();
  end_.has_checkpoint = checkpoints_.writer().has_stored();
  end_.checkpoint_step = checkpoints_.last_step();
  if (record_.results().complete() && !options_.config.has_check()) {
    end_.profile = record_.results().profile();
  }
  return std::move(end_);
}

Reaction Job::react(JobEvent event) {
  const JobResults& results = record_.results();
  const Reaction reaction = reaction_to(
      event, phase_, {.trained = record_.steps() > 0, .reported = results.reported(), .complete = results.complete()});
  phase_ = phase_after(phase_, reaction);
  return reaction;
}

Status Job::on_join(const proto::JoinRequest& request) {
  Status joined = state_.join(request, world_.now());
  if (joined) {
    joined = checkpoints_.take_numerics(request);
  }
  if (!joined) {
    give_error(joined.error());
    return joined;
  }
  deadlines_.joined(world_.now());
  processes_->replicas_run();
  record_.begin_logs(request.instance(), state_.instances()[request.instance()]);
  if (options_.verbosity > 0) {
    console_.say(
        fmt::format("{} joined after {:.2f} s", describe(state_, request.instance()), world_.now() - launched_at_));
  }
  return joined;
}

void Job::on_beat(const proto::Beat& beat) {
  state_.beat(beat, world_.now());
  stragglers_.beat(beat);
  if (!options_.config.has_check()) {
    record_.take(beat, world_.now());
  }
  drain_point_.beat(beat);
  tell_where_to_stop();
  if (data_waits_) {
    coordinator_->excuse(data_waits_->excuse(state_));
  }
}

void Job::tell_where_to_stop() {
  if (react(JobEvent::kHeld) == Reaction::kIgnore) {
    return;
  }
  if (const std::optional<std::uint64_t> last_part = drain_point_.last_part()) {
    coordinator_->stop_after(*last_part);
  }
}

Status Job::on_report(const proto::ReportItem& item) {
  if (const std::uint64_t done = checkpoints_.resumed_step(); item.has_shape() && item.shape().total_steps() < done) {
    const Error error{
        ErrorCode::kUsage,
        fmt::format(
            "--resume: the checkpoint was taken after step {}, but this job has only {}; give the job more steps", done,
            counted(item.shape().total_steps(), "step"))};
    give_error(error);
    return tl::unexpected<Error>{error};
  }
  if (item.has_shape()) {
    checkpoints_.writer().limit_to(item.shape().total_steps());
  }
  const bool shows = react(JobEvent::kReportItem) == Reaction::kTake;
  history_.goodput.take(item, world_.now());
  history_.training.take(item);
  Status taken = record_.take(item, shows, world_.now());
  history_.traced = history_.traced || record_.has_trace();
  if (!taken) {
    end_.may_pass = end_.may_pass && !shows;  // A restarted job could not write the item either.
    give_error(taken.error());
  } else if (item.has_dumped()) {
    deadlines_.dump_came(world_.now());
  }
  return taken;
}

Status Job::on_report_end() {
  if (react(JobEvent::kReportEnd) == Reaction::kIgnore) {
    return {};
  }
  history_.goodput.reported(world_.now());
  Status finished = record_.finish_report(trains() ? std::optional(history_.goodput.parts()) : std::nullopt);
  if (!finished) {
    give_error(finished.error());
  } else if (deadlines_.awaits_dumps()) {
    decide();
  }
  return finished;
}

void Job::wait_for_deadline() {
  const double now = world_.now();
  alarm_->set(deadlines_.next(facts(), now) - now, [this] {
    const Reaction reaction = react(JobEvent::kTick);
    if (reaction == Reaction::kIgnore) {
      return;
    }
    const double woke_at = world_.now();
    notice_own_silence(woke_at);
    if (reaction == Reaction::kWatchDrain) {
      record_.tell_stopping(state_, woke_at);
    }
    if (reaction != Reaction::kWatchEnd) {
      update(woke_at);
    }
    do_what_is_due(woke_at);
    wait_for_deadline();
  });
}

Deadlines::Facts Job::facts() const {
  const bool silence_counts = reaction_to(JobEvent::kTrouble, phase_, {}) == Reaction::kJudge;
  return {.joining = data_waits_ && !state_.all_joined(),
          .done = record_.results().complete() && state_.all_left(),
          .processes_run = processes_->any_run(),
          .oldest_heartbeat = silence_counts ? state_.oldest_heartbeat() : std::nullopt};
}

/// Excuses missing heartbeats if the launcher was suspended and could not receive them.
void Job::notice_own_silence(double now) {
  const Deadlines::Slept slept = deadlines_.woke(now);
  if (slept.excuses_silence) {
    state_.forgive_silence(now);
  }
  if (slept.is_worth_telling) {
    POPRUN_RARE("job.launcher-slept");
    console_.say(
        fmt::format("note: poprun-emu itself did not run for {:.0f} s (it was stopped, or the machine slept); if it "
                    "is silent for too long, replicas assume that it has died",
                    slept.seconds));
  }
}

void Job::update(double now) {
  record_.refresh(now);
  checkpoints_.writer().hold_metrics(record_.results().metrics_wait());
  look_after_results(now);
  if (react(JobEvent::kCheckpointTime) == Reaction::kTake) {
    if (const auto step = checkpoints_.due(state_.step(), record_.total_steps(), now)) {
      coordinator_->request_checkpoint(*step);
    }
  }
  if (const auto news = stragglers_.news(state_)) {
    console_.say(*news);
  }
  if (const auto news = data_waits_ ? data_waits_->news(state_) : std::nullopt) {
    console_.say(*news);
  }
  // mpirun may be the first to report a failure. The launcher holds mpirun's lines back until it can name the cause.
  if (deadlines_.shows_mpirun_lines(now)) {
    record_.mpirun_output().release_mpirun_lines();
  }
}

void Job::do_what_is_due(double now) {
  switch (deadlines_.due(facts(), now)) {
    case Deadlines::Due::kNothing:
      return;
    case Deadlines::Due::kVerdict:
      return decide();
    case Deadlines::Due::kSilence:
      POPRUN_RARE("job.silent-replica");
      // Half the timeout: instances of a dead host fall silent together, but their last heartbeats differ in time.
      return give_verdict(silence_verdict(state_, state_.silent(now, options_.timeouts.heartbeat_seconds / 2), now));
    case Deadlines::Due::kAbsence:
      POPRUN_RARE("job.absent-replica");
      state_.end_joining();
      return give_verdict(absence_verdict(state_, deadlines_.seconds_since_start(now),
                                          fmt::format("{}:{}", own_address_, coordinator_->port())));
    case Deadlines::Due::kMpirunEnd:
      console_.say(fmt::format("the job has finished, but mpirun is still running after {} s; ending mpirun",
                               options_.timeouts.heartbeat_seconds));
      return stop(code_of_results());
    case Deadlines::Due::kDrainEnd:
      return end_drain();
    case Deadlines::Due::kRoomEnd:
      return give_results_up(*record_.results().save_failure(),
                             fmt::format(" (tried for {} s)", Deadlines::kRoomSeconds));
    case Deadlines::Due::kJobTimeout:
      return end_at_timeout(now);
    case Deadlines::Due::kKill:
      POPRUN_RARE("job.killed");
      return processes_->kill();
    case Deadlines::Due::kFinish:
      return finish();
  }
}

}  // namespace poprun::launcher
