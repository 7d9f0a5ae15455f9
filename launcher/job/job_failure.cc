// Signs of trouble in a job, and the verdict on them. Class Job begins in job.cc.
#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <sys/wait.h>

#include "launcher/job/job.h"
#include "launcher/placement/addresses.h"
#include "launcher/placement/mca_parameters.h"
#include "launcher/process/process_handle.h"

namespace poprun::launcher {
namespace {

// Time allowed for a host to answer. It is enough for one lost packet, which is retransmitted after 1 s.
constexpr std::chrono::seconds kAnswerPatience{2};

}  // namespace

void Job::on_leave(std::uint32_t instance, bool orderly) {
  state_.leave(instance, orderly);
  deadlines_.left(world_.now());
  drain_point_.left(instance);
  tell_where_to_stop();
  if (!orderly) {
    trouble(Deadlines::Trouble::kLostTouch);
  }
}

void Job::on_failure(const proto::Failure& failure) {
  state_.failure(failure, world_.now());
  trouble(Deadlines::trouble_of_failure(failure.exit_code(), record_.dumps_may_come()));
}

void Job::on_mpirun_line(std::string_view line, bool is_stderr) {
  OutputRouter& output = record_.mpirun_output();
  const std::size_t held = output.held_lines();
  output.take(line, is_stderr);
  if (output.held_lines() > held) {
    deadlines_.mpirun_line_held(world_.now());
  }
  MpirunFindings found = output.notices().findings();
  if (found.start_failure && found.start_failure->no_daemon &&
      std::ranges::any_of(state_.instances(), &InstanceView::joined)) {
    found.start_failure.reset();  // The daemon had started, so this line only reports the end of its shell.
  }
  if (found != state_.mpirun()) {
    state_.mpirun_found(found);
    lacks_daemon(state_) ? explain_mpirun(0) : trouble(Deadlines::Trouble::kCause);
  }
}

void Job::on_mpirun_exit(int status) {
  if (options_.verbosity > 0) {
    console_.say(fmt::format("mpirun {}", exit_text(status)));
  }
  const bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  const Reaction reaction = react(clean ? JobEvent::kMpirunDone : JobEvent::kMpirunFailed);
  if (reaction == Reaction::kSaveAlone) {
    return look_after_results(world_.now());
  }
  if (reaction == Reaction::kIgnore) {
    return;
  }
  if (state_.any_trouble()) {
    return decide();
  }
  if (std::ranges::none_of(state_.instances(), &InstanceView::joined)) {
    if (const Status fits = processes_->check_mpirun(); !fits) {
      return give_error(fits.error());
    }
  }
  explain_mpirun(status);
}

void Job::on_data_server_exit(int status) {
  if (react(JobEvent::kDataServerExit) == Reaction::kIgnore) {
    return;
  }
  console_.say(fmt::format("the data server {}; replicas retry for {} s and lose nothing if you restart the server: {}",
                           exit_text(status), options_.hostio.timeout_seconds, processes_->restart_command()));
}

/// Records a sign of trouble, and waits a little for messages that explain it.
void Job::trouble(Deadlines::Trouble kind) {
  if (react(JobEvent::kTrouble) == Reaction::kIgnore) {
    return;
  }
  const double now = world_.now();
  deadlines_.trouble(kind, now);
  if (deadlines_.due(facts(), now) == Deadlines::Due::kVerdict) {
    decide();
  }
}

void Job::decide() {
  deadlines_.judged();
  if (std::optional<Verdict> verdict = name_cause(state_, world_.now(), deadlines_.quiet_seconds())) {
    if (deadlines_.awaits_dumps() && record_.dumps_may_come()) {
      verdict->more.emplace_back("  replica 0 did not send all of its dump");
    }
    give_verdict(unless_settings(state_, *verdict, component_variables()));
  }
}

/// Probes the hosts whose daemon did not start, and then gives the verdict.
void Job::explain_mpirun(int status) {
  if (react(JobEvent::kMpirunGaveUp) == Reaction::kIgnore) {
    return;
  }
  const MpirunNotices& notices = record_.mpirun_output().notices();
  const auto conclude = [this, status, &notices](std::vector<std::string> silent) {
    state_.hosts_do_not_answer(std::move(silent));
    give_verdict(
        unless_settings(state_, mpirun_verdict(state_, status, notices, record_.logs_folder()), component_variables()));
  };
  std::vector<std::string> others = hosts_to_ask(state_, notices);
  if (others.empty()) {
    conclude({});
  } else {
    find_silent_hosts(loop_, std::move(others), kAnswerPatience, conclude);
  }
}

void Job::give_verdict(const Verdict& verdict) {
  const Reaction reaction = react(JobEvent::kVerdict);
  if (reaction == Reaction::kIgnore) {
    return;
  }
  const double now = world_.now();
  if (reaction == Reaction::kSaveAlone) {  // The job is complete, whatever has failed since.
    console_.say(fmt::format("note: the results are complete, but {}", verdict.first_line));
    return look_after_results(now);
  }
  notice_own_silence(now);
  history_.goodput.failed(now);
  end_.lost_hosts = lost_hosts(state_, now, deadlines_.quiet_seconds());
  Verdict told = verdict;
  if (const Status reaches_itself = check_loopback(); !reaches_itself) {
    told.more.insert(told.more.begin(), "  " + reaches_itself.error().message);
  }
  record_.tell(told, state_, now);
  stop(signal_ == 0 ? verdict.exit_code : 128 + signal_);
}

void Job::give_error(const Error& error) {
  give_verdict({exit_code_of(error.code), error.message});
}

}  // namespace poprun::launcher
