#include "launcher/job/job.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <sys/wait.h>

#include "launcher/placement/addresses.h"
#include "launcher/placement/hosts.h"
#include "launcher/placement/mca_parameters.h"
#include "launcher/process/process_handle.h"
#include "launcher/verdict/replica_words.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr std::chrono::seconds kDiskTimeUntold{5};
constexpr std::chrono::seconds kDiskTimeMax{600};
// Time for a host to answer even if a packet is lost: the retransmission follows after 1 s.
constexpr std::chrono::seconds kAnswerPatience{2};

Deadlines::Limits limits_of(const Options& options) {
  return {.heartbeat_interval = options.heartbeat_interval_seconds,
          .heartbeat_timeout = options.heartbeat_timeout_seconds,
          .join_timeout = static_cast<double>(options.collective_timeout_seconds),
          .job_timeout = options.timeout_seconds,
          .drain_timeout = options.drain_timeout_seconds};
}

}  // namespace

Job::Job(const Options& options, const Placement& placement, Console& console, OutputFolder& folder, double launched_at,
         std::uint32_t restarts)
    : options_(options),
      placement_(placement),
      console_(console),
      launched_at_(launched_at),
      restarts_(restarts),
      signals_(loop_, SIGUSR1),
      timer_(loop_),
      end_timer_(loop_),
      processes_(loop_, options, placement, console, security_,
                 {.on_mpirun_line = [this](std::string_view line, bool is_stderr) { on_mpirun_line(line, is_stderr); },
                  .on_mpirun_exit = [this](int status) { on_mpirun_exit(status); },
                  .on_dataset = [this](const auto& served) { on_dataset(served); },
                  .on_data_server_exit = [this](int status) { on_data_server_exit(status); }}),
      state_(placement, launched_at, options.cpu_isa),
      deadlines_(limits_of(options), launched_at),
      drain_point_(placement.num_instances),
      stragglers_(placement.num_replicas),
      record_(options, placement, console, folder),
      checkpoints_(loop_, options, console) {
  for (const int number : ending_signals()) {
    signals_.add(number);
  }
}

JobEnd Job::run() {
  wait_for_signal();
  wait_for_deadline();
  const Status started = prepare();
  deadlines_.started(monotonic_seconds());
  if (!started) {
    give_error(started.error());
  }
  loop_.run();
  JobEnd end{.exit_code = exit_code_,
             .may_pass = signal_ == 0 && !is_final_ &&
                         (exit_code_ == exit_code_of(ErrorCode::kInfrastructure) ||
                          exit_code_ == exit_code_of(ErrorCode::kUnreachable)),
             .has_checkpoint = checkpoints_.writer().has_stored(),
             .lost_hosts = lost_hosts_};
  if (record_.results().complete() && !options_.config.has_check()) {
    end.profile = record_.results().profile();
  }
  return end;
}

/// Address at which replicas reach this launcher. Requires: the coordinator runs.
std::string Job::address() const {
  return fmt::format("{}:{}", processes_.own_address(), coordinator_->port());
}

Status Job::on_join(const proto::JoinRequest& request) {
  Status joined = state_.join(request, monotonic_seconds());
  if (joined) {
    joined = checkpoints_.take_numerics(request);
  }
  if (!joined) {
    give_error(joined.error());
    return joined;
  }
  deadlines_.joined(monotonic_seconds());
  processes_.replicas_run();
  record_.begin_logs(request.instance(), state_.instances()[request.instance()]);
  if (options_.verbosity > 0) {
    console_.say(fmt::format("{} joined after {:.2f} s", describe(state_, request.instance()),
                             monotonic_seconds() - launched_at_));
  }
  return joined;
}

void Job::on_beat(const proto::Beat& beat) {
  state_.beat(beat, monotonic_seconds());
  stragglers_.beat(beat);
  drain_point_.beat(beat);
  tell_where_to_stop();
  if (data_waits_) {
    coordinator_->excuse(data_waits_->excuse(state_));
  }
}

void Job::on_leave(std::uint32_t instance, bool orderly) {
  state_.leave(instance, orderly);
  deadlines_.left(monotonic_seconds());
  drain_point_.left(instance);
  tell_where_to_stop();
  if (!orderly) {
    trouble(Deadlines::Trouble::kLostTouch);
  }
}

void Job::on_failure(const proto::Failure& failure) {
  state_.failure(failure, monotonic_seconds());
  const auto has_code = [&failure](ErrorCode code) {
    return failure.exit_code() == static_cast<std::uint32_t>(exit_code_of(code));
  };
  // If a NaN or infinity ends a step, replica 0 also ends or waits at that step, after it has sent its dumps of the
  // step. No instance exits before we have decided.
  const bool dumps_come = has_code(ErrorCode::kData) && dumps_may_come();
  awaits_dumps_ = awaits_dumps_ || dumps_come;
  const bool has_other_sides = has_code(ErrorCode::kInfrastructure) || has_code(ErrorCode::kBug);
  trouble(has_other_sides ? Deadlines::Trouble::kOneSide
          : dumps_come    ? Deadlines::Trouble::kDumps
                          : Deadlines::Trouble::kCause);
}

Status Job::on_report(const proto::ReportItem& item) {
  if (const std::uint64_t done = checkpoints_.resumed_step(); item.has_shape() && item.shape().total_steps() < done) {
    const Error error{
        ErrorCode::kUsage,
        fmt::format("--resume: the checkpoint is from after step {}, but this job has {}; give it more steps", done,
                    counted(item.shape().total_steps(), "step"))};
    give_error(error);
    return tl::unexpected<Error>{error};
  }
  Status taken = record_.take(item, /*shows=*/!ending(), monotonic_seconds());
  if (!taken) {
    is_final_ = is_final_ || !ending();  // It could not be written later either.
    give_error(taken.error());
  } else if (item.has_dumped() && awaits_dumps_) {
    deadlines_.dump_came(monotonic_seconds());
  }
  return taken;
}

Status Job::on_report_end() {
  if (phase_ == Phase::kStopping) {
    return {};
  }
  Status finished = record_.finish_report();
  if (!finished) {
    give_error(finished.error());
  } else if (awaits_dumps_) {
    decide();
  }
  return finished;
}

void Job::on_mpirun_line(std::string_view line, bool is_stderr) {
  OutputRouter& output = record_.mpirun_output();
  const std::size_t held = output.held_lines();
  output.take(line, is_stderr);
  if (output.held_lines() > held) {
    deadlines_.mpirun_line_held(monotonic_seconds());
  }
  if (output.notices().findings() != state_.mpirun()) {
    state_.mpirun_found(output.notices().findings());
    lacks_daemon(state_) ? conclude_start(0) : trouble(Deadlines::Trouble::kCause);
  }
}

/// Concludes a start in which mpirun ended without starting anything, or still waits for a daemon that will not start.
/// Before the verdict, probes the hosts whose daemon did not start.
void Job::conclude_start(int status) {
  if (ending() || needs_nobody_ || std::exchange(start_ended_, true)) {
    return;
  }
  const MpirunNotices& notices = record_.mpirun_output().notices();
  const auto conclude = [this, status, &notices](std::vector<std::string> silent) {
    state_.hosts_do_not_answer(std::move(silent));
    give_verdict(
        unless_settings(state_, mpirun_verdict(state_, status, notices, record_.logs_folder()), component_variables()));
  };
  std::vector<std::string> others;
  for (std::size_t h = 0; h < placement_.hosts.size(); ++h) {
    const bool asked = lacks_daemon(state_) ? same_host(state_.mpirun().start_failure->node, placement_.hosts[h])
                                            : notices.misses_a_daemon();
    if (asked && !placement_.is_local[h] && placement_.slurm_job.empty()) {
      others.push_back(placement_.hosts[h]);
    }
  }
  if (others.empty()) {
    conclude({});
  } else {
    find_silent_hosts(loop_, std::move(others), kAnswerPatience, conclude);
  }
}

void Job::on_mpirun_exit(int status) {
  if (options_.verbosity > 0) {
    console_.say(fmt::format("mpirun {}", exit_text(status)));
  }
  if (ending()) {
    return;
  }
  const bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (needs_nobody_ || (clean && record_.results().reported())) {
    wait_for_files_alone();
    return;
  }
  if (start_ended_) {
    return;
  }
  if (state_.any_trouble()) {
    decide();
    return;
  }
  if (std::ranges::none_of(state_.instances(), &InstanceView::joined)) {
    if (const Status fits = processes_.check_mpirun(); !fits) {
      give_error(fits.error());
      return;
    }
  }
  conclude_start(status);
}

void Job::on_data_server_exit(int status) {
  if (ending() || record_.results().reported()) {
    return;
  }
  console_.say(fmt::format("the data server {}; replicas keep trying for {} s and lose nothing if you restart it: {}",
                           exit_text(status), options_.hostio_timeout_seconds, processes_.restart_command()));
}

/// Records trouble, and waits a little for messages that explain it.
void Job::trouble(Deadlines::Trouble kind) {
  if (ending() || needs_nobody_) {
    return;
  }
  const double now = monotonic_seconds();
  deadlines_.trouble(kind, now);
  if (deadlines_.due(facts(), now) == Deadlines::Due::kVerdict) {
    decide();
  }
}

/// Returns whether dumps may come: a replica is at most one step ahead of replica 0, whose metrics may be in transit.
bool Job::dumps_may_come() const {
  return record_.results().awaits_dumps(record_.steps() + 2);
}

void Job::decide() {
  deadlines_.judged();
  if (std::optional<Verdict> verdict = name_cause(state_, monotonic_seconds(), deadlines_.quiet_seconds())) {
    if (awaits_dumps_ && dumps_may_come()) {
      verdict->more.emplace_back("  replica 0 did not send all of its dump");
    }
    give_verdict(unless_settings(state_, *verdict, component_variables()));
  }
}

void Job::give_verdict(const Verdict& verdict) {
  if (ending() || needs_nobody_) {
    return;
  }
  if (record_.results().reported()) {  // The job is complete, whatever broke later.
    console_.say(fmt::format("note: the results are complete, but {}", verdict.first_line));
    wait_for_files_alone();
    return;
  }
  const double now = monotonic_seconds();
  notice_own_silence(now);
  lost_hosts_ = lost_hosts(state_, now, deadlines_.quiet_seconds());
  Verdict told = verdict;
  if (const Status reaches_itself = check_loopback(); !reaches_itself) {
    told.more.insert(told.more.begin(), "  " + reaches_itself.error().message);
  }
  record_.tell(told, state_, now);
  stop(signal_ == 0 ? verdict.exit_code : 128 + signal_, false);
}

void Job::give_error(const Error& error) {
  give_verdict({exit_code_of(error.code), error.message});
}

void Job::stop(int exit_code, bool at_once) {
  exit_code_ = exit_code;
  if (phase_ != Phase::kStopping) {
    phase_ = Phase::kStopping;
    deadlines_.stopping(monotonic_seconds());
    if (coordinator_ != nullptr) {
      coordinator_->close();  // mpirun may still start replicas that it was about to start.
    }
    processes_.terminate();
  }
  if (at_once) {
    processes_.kill();
  }
}

void Job::finish() {
  phase_ = Phase::kOver;
  processes_.clear_away();
  record_.close(/*ended_early=*/signal_ != 0, checkpoints_.summary());
  checkpoints_.writer().no_more_metrics();
  const auto end_loop = [this] { loop_.stop(); };
  if (coordinator_ == nullptr) {
    end_loop();
  } else {
    coordinator_->stop(end_loop);
    wait_for_disk();
  }
}

/// Waits for a checkpoint that may still be being written to a slow or hanging disk: the write cannot be cancelled.
void Job::wait_for_disk() {
  end_timer_.expires_after(waits_for_disk_ ? kDiskTimeMax : kDiskTimeUntold);
  end_timer_.async_wait([this](const asio::error_code& error) {
    if (error) {
      return;
    }
    if (std::exchange(waits_for_disk_, true)) {
      return end_without_disk();
    }
    console_.say(
        fmt::format("the job has ended, but a checkpoint is still being written to {}; "
                    "waiting {} s for it, or until the next signal",
                    options_.checkpoint_dir, kDiskTimeMax.count()));
    wait_for_disk();
  });
}

void Job::end_without_disk() {
  console_.say(fmt::format("ending without the checkpoint that is being written to {}", options_.checkpoint_dir));
  std::_Exit(exit_code_);
}

void Job::wait_for_signal() {
  signals_.async_wait([this](const asio::error_code& error, int number) {
    if (!error) {
      on_signal(number);
      wait_for_signal();
    }
  });
}

}  // namespace poprun::launcher
