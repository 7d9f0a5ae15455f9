#include "launcher/job/job.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <sys/wait.h>

#include "launcher/job/inquiry.h"
#include "launcher/job/model_file.h"
#include "launcher/mpi/mpi_session.h"
#include "launcher/mpi/mpirun.h"
#include "launcher/screen/summary.h"

namespace poprun::launcher {
namespace {

constexpr std::chrono::milliseconds kTick{100};
constexpr double kHoldSeconds = 2;  ///< For mpirun's lines, until it is clear that nothing failed.
constexpr double kOversleptSeconds = 1;       // A tick this late: it was us who did not run.
constexpr double kToldSeconds = 4;            // And then the user should know.
constexpr double kDetailsSeconds = 2.5;       // mpirun tells a signal about 2 s after the death.
constexpr double kPeersFailureSeconds = 0.5;  // One side's words come before those of the others.
constexpr double kQuietSeconds = 4;           // And two heartbeats: no machine is so busy.
constexpr double kDrainSeconds = 3;
constexpr double kStopSeconds = 1.5;   // Then everything gets SIGKILL,
constexpr double kStopSecondsMax = 4;  // and then we go.
constexpr int kInfrastructure = static_cast<int>(ErrorCode::kInfrastructure);

}  // namespace

Job::Job(const Options& options, const Placement& placement, Console& console, double launched_at)
    : options_(options),
      placement_(placement),
      console_(console),
      launched_at_(launched_at),
      token_(job_token()),
      own_address_(advertised_host(placement)),
      signals_(loop_, SIGINT, SIGTERM, SIGHUP),
      tick_(loop_),
      supervisor_(loop_),
      state_(placement, launched_at),
      display_(console, options.config),
      results_(options.output_dir, options.config),
      logs_(results_.path("logs"), placement.num_replicas),
      router_(console, logs_, placement_,
              {.only_instance = options.only_output_from_instance,
               .show_mpirun = options.verbosity > 0,
               .show_info = options.verbosity > 0}) {}

int Job::run() {
  last_tick_ = launched_at_;
  wait_for_signal();
  wait_for_tick();
  if (const Status started = prepare(); !started) {
    give_error(started.error());
  }
  loop_.run();
  return exit_code_;
}

Status Job::prepare() {
  if (const std::string& file = options_.config.model().initial_weights(); !file.empty()) {
    POPRUN_ASSIGN(initial_weights_, read_safetensors(file));
  }
  if (const std::string& file = options_.config.model().onnx(); !file.empty()) {
    POPRUN_ASSIGN(std::string bytes, read_model_file(file));
    if (const int refused = check_model(bytes); refused != 0) {
      stop(refused, /*at_once=*/false);
      return {};
    }
    onnx_model_ = {{.name = file, .dtype = "U8", .shape = {}, .data = std::move(bytes)}};
  }
  POPRUN_ASSIGN(output_folder_, OutputFolder::take(options_.output_dir, options_.overwrite));
  POPRUN_ASSIGN(programs_, find_programs());
  POPRUN_TRY(check_room_for_mpi_session(placement_.num_instances));
  POPRUN_ASSIGN(coordinator_,
                Coordinator::start(loop_, *this,
                                   {.bind_host = placement_.all_local ? "127.0.0.1" : "0.0.0.0",
                                    .token = token_,
                                    .launched_at = launched_at_,
                                    .initial_weights = initial_weights_,
                                    .onnx_model = onnx_model_}));
  // Both at once: the dataset is usually known before mpirun's ranks ask for it.
  POPRUN_TRY(start_mpirun());
  data_.emplace(
      loop_, supervisor_, console_, options_,
      DataService::Setup{.program = programs_.data_server,
                         .local_only = placement_.all_local,
                         .own_address = own_address_,
                         .token = token_},
      DataService::Events{.on_dataset = [this](const auto& dataset) { on_dataset(dataset); },
                          .on_end = [this](int status) { on_data_server_exit(status); }});
  return data_->start();
}

/// A model that no replica could read is refused before anything is started. Nonzero: the exit
/// code; why is said. Costs the start of one process.
int Job::check_model(const std::string& onnx) {
  proto::JoinReply question;
  *question.mutable_config() = options_.config;
  question.set_onnx_model(onnx);
  return ask({"poprun-emu-replica", "--check-model"}, question.SerializeAsString(), console_);
}

Status Job::start_mpirun() {
  const MpirunCommand command = mpirun_here(options_, placement_, programs_.replica);
  Child::Program program{programs_.mpirun, command.arguments, command.environment};
  program.environment.emplace_back("POPRUN_EMU_COORDINATOR",
                                   fmt::format("{}:{}", own_address_, coordinator_->port()));
  program.environment.emplace_back("POPRUN_EMU_TOKEN", token_);
  if (options_.verbosity > 0) {
    console_.say(fmt::format("running {}", shell_line(command)));
  }
  return supervisor_.start_mpirun(
      program, [this](std::string_view line) { on_mpirun_line(line, false); },
      [this](std::string_view line) { on_mpirun_line(line, true); },
      [this](int status) { on_mpirun_exit(status); });
}

void Job::on_dataset(const Result<ServedDataset>& served) {
  if (!served) {
    give_error(served.error());
    return;
  }
  if (phase_ != Phase::kRunning) {
    return;
  }
  dataset_known_ = true;
  proto::JoinReply reply;
  *reply.mutable_config() = options_.config;
  *reply.mutable_dataset() = served->dataset;
  const bool no_test = served->dataset.test_items() == 0;
  if (no_test && options_.config.inference()) {
    console_.say("note: the data has no test part, so all its items are inferred");
  } else if (no_test && options_.config.training().evaluate()) {
    console_.say("note: the data has no test part, so nothing is evaluated");
    reply.mutable_config()->mutable_training()->set_evaluate(false);
  }
  for (std::uint32_t i = 0; i < placement_.num_instances; ++i) {
    reply.mutable_config()->mutable_topology()->add_instance_host(placement_.host_of(i));
  }
  reply.set_hostio_address(served->address);
  reply.set_hostio_timeout_seconds(options_.hostio_timeout_seconds);
  reply.set_heartbeat_interval_ms(
      static_cast<std::uint32_t>(options_.heartbeat_interval_seconds * 1000));
  reply.set_collective_timeout_seconds(options_.collective_timeout_seconds);
  coordinator_->open(reply);
}

Status Job::on_join(const proto::JoinRequest& request) {
  Status joined = state_.join(request, monotonic_seconds());
  if (!joined) {
    give_error(joined.error());
    return joined;
  }
  if (Status logged = begin_logs(request.instance()); !logged) {
    give_error(logged.error());
    return logged;
  }
  if (options_.verbosity > 0) {
    console_.say(fmt::format("{} joined after {:.2f} s", describe(state_, request.instance()),
                             monotonic_seconds() - launched_at_));
  }
  return joined;
}

/// Every replica has a log, and its first line says where it ran.
Status Job::begin_logs(std::uint32_t instance) {
  const InstanceView& view = state_.instances()[instance];
  const std::uint32_t local = placement_.replicas_per_instance();
  for (std::uint32_t r = instance * local; r < (instance + 1) * local; ++r) {
    POPRUN_TRY(logs_.write(r, fmt::format("# replica {}: instance {}, host {}, pid {}", r, instance,
                                          view.host, view.pid)));
  }
  return {};
}

void Job::on_beat(const proto::Beat& beat) {
  state_.beat(beat, monotonic_seconds());
}

void Job::on_leave(std::uint32_t instance, bool orderly) {
  state_.leave(instance, orderly);
  left_at_ = monotonic_seconds();
  if (!orderly) {
    expect_details(kDetailsSeconds);
  }
}

void Job::on_failure(const proto::Failure& failure) {
  state_.failure(failure);
  const bool has_other_sides = failure.exit_code() == static_cast<std::uint32_t>(kInfrastructure) ||
                               failure.exit_code() == static_cast<std::uint32_t>(ErrorCode::kBug);
  expect_details(has_other_sides ? kPeersFailureSeconds : 0);
}

Status Job::on_report(const proto::ReportItem& item) {
  if (!ending()) {
    display_.take(item);
  }
  Status taken = results_.take(item);
  if (!taken) {
    give_error(taken.error());
  } else if (item.has_output()) {
    const auto items = static_cast<std::uint64_t>(item.output().shape(0));
    display_.outputs(results_.items_written(), items, monotonic_seconds());
  }
  return taken;
}

Status Job::on_report_end() {
  if (phase_ == Phase::kStopping) {
    return {};
  }
  Status written = results_.finish();
  if (!written) {
    give_error(written.error());
  }
  return written;
}

void Job::on_mpirun_line(std::string_view line, bool is_stderr) {
  const bool knew = router_.notices().rank_end().has_value();
  const std::size_t held = router_.held_lines();
  if (const Status routed = router_.take(line, is_stderr); !routed) {
    give_error(routed.error());
  }
  if (router_.held_lines() > held) {
    held_since_ = monotonic_seconds();
  }
  if (!knew && router_.notices().rank_end()) {
    state_.rank_end(*router_.notices().rank_end());
    expect_details(0);
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
  if (clean && results_.complete()) {
    stop(code_of_results(), false);
    return;
  }
  if (state_.any_trouble()) {
    decide();
    return;
  }
  give_verdict(
      mpirun_verdict(state_, status, router_.notices().essential(), results_.path("logs")));
}

void Job::on_data_server_exit(int status) {
  if (ending() || results_.complete()) {
    return;
  }
  std::string command = data_->restart_command();
  if (!token_is_users()) {
    // Not printed itself: it would end up in logs.
    command = fmt::format(
        "POPRUN_EMU_TOKEN=$(tr '\\0' '\\n' < /proc/{}/environ | sed -n s/^POPRUN_EMU_TOKEN=//p) {}",
        supervisor_.mpirun_pid(), command);
  }
  console_.say(fmt::format(
      "the data server {}; replicas keep trying for {} s and lose nothing if it comes back: {}",
      exit_text(status), options_.hostio_timeout_seconds, command));
}

void Job::on_signal(int number) {
  if (number == SIGHUP && signal_ == SIGHUP) {
    return;  // A terminal that closes sends one, and its shell another.
  }
  if (results_.complete() && !ending()) {
    stop(code_of_results(), /*at_once=*/false);
    return;
  }
  if (signal_ != 0 || phase_ != Phase::kRunning) {
    // mpirun is left the moment it takes to clean up, once.
    const bool stopping = phase_ == Phase::kStopping;
    stop(stopping ? exit_code_ : 128 + number, /*at_once=*/stopping);
    return;
  }
  signal_ = number;
  if (display_.progress().steps() == 0) {
    console_.say(fmt::format("SIG{}: ending the job{}", sigabbrev_np(number),
                             options_.config.inference()
                                 ? "; outputs are kept only when all are there"
                                 : ", which has not done a step yet"));
    stop(128 + number, false);
    return;
  }
  phase_ = Phase::kDraining;
  if (display_.progress().steps() == display_.progress().total_steps()) {
    drain_until_ = std::numeric_limits<double>::infinity();
    console_.say(
        fmt::format("SIG{}: the training is done; waiting for its results, which a second signal "
                    "gives up",
                    sigabbrev_np(number)));
    return;
  }
  drain_until_ = monotonic_seconds() + kDrainSeconds;
  console_.say(fmt::format(
      "SIG{}: finishing the step and saving the weights, {} s at most; once more to end at once",
      sigabbrev_np(number), kDrainSeconds));
  coordinator_->request_drain();
}

/// The signal's code tells a script that training did not run to its end. Requires: the results are
/// complete.
int Job::code_of_results() const {
  return signal_ != 0 && results_.profile().outcome().drained() ? 128 + signal_ : 0;
}

/// What came late because nobody listened is not the others' fault.
void Job::notice_own_silence(double now) {
  const double slept = now - std::exchange(last_tick_, now);
  if (slept > kOversleptSeconds) {
    state_.forgive_silence(now);
  }
  if (slept > kToldSeconds) {
    console_.say(fmt::format(
        "note: poprun-emu itself did not run for {:.0f} s (stopped, or the machine asleep); "
        "replicas take a launcher that is silent for long for dead",
        slept));
  }
}

void Job::on_tick() {
  const double now = monotonic_seconds();
  notice_own_silence(now);
  if (phase_ == Phase::kStopping) {
    watch_the_stop(now);
    return;
  }
  if (const Status flushed = results_.flush(); !flushed) {
    give_error(flushed.error());
    return;
  }
  // mpirun's words on a failure may come before anything else of it: they wait for the first cause.
  if (decide_at_ == 0 && now - held_since_ > kHoldSeconds) {
    router_.release_mpirun_lines();
  }
  display_.refresh(now);
  const bool still_joining = dataset_known_ && !state_.all_joined();
  if (decide_at_ != 0 && now >= decide_at_) {
    decide();
  } else if (decide_at_ == 0 && !state_.silent(now, options_.heartbeat_timeout_seconds).empty()) {
    // Those of one host fall silent together, but not within one tick.
    give_verdict(
        silence_verdict(state_, state_.silent(now, options_.heartbeat_timeout_seconds / 2), now));
  } else if (still_joining && now - launched_at_ > options_.collective_timeout_seconds) {
    give_verdict(absence_verdict(state_, now - launched_at_));
  } else if (results_.complete() && state_.all_left() &&
             now - left_at_ > options_.heartbeat_timeout_seconds) {
    console_.say(fmt::format("the job is done, but mpirun did not end for {} s; ending it",
                             options_.heartbeat_timeout_seconds));
    stop(code_of_results(), false);
  } else if (phase_ == Phase::kDraining && now >= drain_until_ && results_.complete()) {
    stop(code_of_results(), false);
  } else if (phase_ == Phase::kDraining && now >= drain_until_) {
    console_.say(fmt::format("the job did not end its step within {} s; ending it without saving",
                             kDrainSeconds));
    stop(128 + signal_, false);
  } else if (options_.timeout_seconds > 0 && now - launched_at_ > options_.timeout_seconds) {
    give_verdict(
        {kInfrastructure,
         fmt::format("the job is not done after {} s, the limit of --timeout; it {}",
                     options_.timeout_seconds,
                     state_.step() == 0 ? "had not done a step yet"
                                        : fmt::format("was at step {} of {}", state_.step(),
                                                      display_.progress().total_steps())),
         meanwhile(state_, {}, now)});
  }
}

/// Something is wrong; wait a little for the news that explain it.
void Job::expect_details(double seconds) {
  if (ending()) {
    return;
  }
  const double at = monotonic_seconds() + seconds;
  decide_at_ = decide_at_ == 0 ? at : std::min(decide_at_, at);
  if (seconds == 0) {
    decide();
  }
}

void Job::decide() {
  if (const std::optional<Verdict> verdict = name_cause(
          state_, monotonic_seconds(), kQuietSeconds + 2 * options_.heartbeat_interval_seconds)) {
    give_verdict(*verdict);
  }
}

void Job::give_verdict(const Verdict& verdict) {
  if (ending()) {
    return;
  }
  if (results_.complete()) {  // Whatever broke then, nobody has to run the job again.
    console_.say(fmt::format("note: the results are complete, but {}", verdict.first_line));
    stop(code_of_results(), false);
    return;
  }
  notice_own_silence(monotonic_seconds());
  // A log that is more than its own beginning has something to tell.
  const bool has_lines = verdict.instance && router_.has_lines(*verdict.instance);
  console_.say(has_lines
                   ? fmt::format("{}; last lines in {}", verdict.first_line,
                                 logs_.path(*verdict.instance * placement_.replicas_per_instance()))
                   : verdict.first_line);
  for (const std::string& line : verdict.more) {
    console_.err(line);
  }
  write_failure(verdict);
  if (verdict.instance) {
    for (const std::string& line : router_.hidden_lines(*verdict.instance)) {
      console_.err(line);
    }
  }
  router_.release_mpirun_lines();
  stop(signal_ == 0 ? verdict.exit_code : 128 + signal_, false);
}

/// Not of a job that never began.
void Job::write_failure(const Verdict& verdict) {
  if (std::ranges::none_of(state_.instances(), &InstanceView::joined)) {
    return;
  }
  const std::string path = results_.path("failure.txt");
  const std::string report = failure_report(state_, verdict, monotonic_seconds());
  const Status written = write_whole_file(path, {report});
  console_.err(written ? fmt::format("  what each replica did: {}", path)
                       : written.error().message);
}

void Job::give_error(const Error& error) {
  give_verdict({static_cast<int>(error.code), error.message});
}

void Job::stop(int exit_code, bool at_once) {
  exit_code_ = exit_code;
  if (data_) {
    data_->forget();
  }
  if (phase_ != Phase::kStopping) {
    phase_ = Phase::kStopping;
    stopping_since_ = monotonic_seconds();
    if (coordinator_ != nullptr) {
      coordinator_->close();  // mpirun may yet start replicas that it was about to start.
    }
    supervisor_.terminate(local_replicas());
  }
  if (at_once) {
    supervisor_.kill_all();
  }
}

void Job::watch_the_stop(double now) {
  const double waited = now - stopping_since_;
  if (!supervisor_.anything_runs() || waited > kStopSecondsMax) {
    finish();
  } else if (waited > kStopSeconds) {
    supervisor_.kill_all();
  }
}

void Job::finish() {
  phase_ = Phase::kOver;
  supervisor_.kill_all();
  supervisor_.remove_leftovers();
  router_.release_mpirun_lines();
  const bool ran = signal_ != 0 || display_.progress().steps() > 0;
  for (const std::string& line :
       results_.settle_dumps(ran ? std::optional(display_.progress().steps()) : std::nullopt)) {
    console_.say(line);
  }
  if (results_.complete()) {
    display_.end();
    console_.out(summary(results_.profile(), options_.output_dir));
  }
  const auto end_loop = [this] { loop_.stop(); };
  if (coordinator_ == nullptr) {
    end_loop();
  } else {
    coordinator_->stop(end_loop);
  }
}

void Job::wait_for_tick() {
  tick_.expires_after(kTick);
  tick_.async_wait([this](const asio::error_code& error) {
    if (!error && phase_ != Phase::kOver) {
      on_tick();
      wait_for_tick();
    }
  });
}

void Job::wait_for_signal() {
  signals_.async_wait([this](const asio::error_code& error, int number) {
    if (!error) {
      on_signal(number);
      wait_for_signal();
    }
  });
}

std::vector<pid_t> Job::local_replicas() const {
  std::vector<pid_t> pids;
  for (const InstanceView& instance : state_.instances()) {
    if (instance.joined && is_this_machine(instance.host)) {
      pids.push_back(static_cast<pid_t>(instance.pid));
    }
  }
  return pids;
}

}  // namespace poprun::launcher
