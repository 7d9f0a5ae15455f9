#include "launcher/job.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>

#include "launcher/inquiry.h"
#include "launcher/model_file.h"
#include "launcher/summary.h"

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
constexpr double kPlainProgressSeconds = 10;
constexpr int kInfrastructure = static_cast<int>(ErrorCode::kInfrastructure);

/// mpirun's own failures and those of its daemons and ssh: running again can work.
bool is_infrastructure(int status) {
  if (!WIFEXITED(status)) {
    return true;
  }
  const int code = WEXITSTATUS(status);
  return code == 205 || code == 254 || code == 255 || code > 128;
}

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
      logs_(result_path("logs")),
      router_(console, logs_, placement_,
              {.only_instance = options.only_output_from_instance,
               .show_mpirun = options.verbosity > 0,
               .show_info = options.verbosity > 0}) {
  for (const proto::DumpRequest& request : options.config.report().dump_tensors()) {
    dumps_due_.insert(request.step());
  }
}

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
  POPRUN_TRY(prepare_output_folder(options_.output_dir, options_.overwrite));
  POPRUN_ASSIGN(programs_, find_programs());
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
  return ask_replica({"--check-model"}, question.SerializeAsString(), console_);
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
  const Status joined = state_.join(request, monotonic_seconds());
  if (!joined) {
    give_error(joined.error());
    return joined;
  }
  if (const Status logged = begin_logs(request.instance()); !logged) {
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
    POPRUN_TRY(logs_.write(replica_log_name(r, placement_.num_replicas),
                           fmt::format("# replica {}: instance {}, host {}, pid {}", r, instance,
                                       view.host, view.pid)));
  }
  return {};
}

std::string Job::log_of(std::uint32_t instance) const {
  return replica_log_name(instance * placement_.replicas_per_instance(), placement_.num_replicas);
}

void Job::on_beat(const proto::Beat& beat) {
  state_.beat(beat, monotonic_seconds());
}

void Job::on_leave(std::uint32_t instance, bool orderly) {
  state_.leave(instance, orderly);
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
  const auto append = [&](const std::string& row) -> Status {
    if (!metrics_) {
      POPRUN_ASSIGN(metrics_, GrowingFile::open(result_path("metrics.csv")));
      POPRUN_TRY(metrics_->append(metrics_header()));
    }
    metrics_unflushed_ = true;
    return metrics_->append(row);
  };
  Status taken;
  switch (item.kind_case()) {
    case proto::ReportItem::kShape:
      show_shape(item.shape());
      break;
    case proto::ReportItem::kStep:
      progress_.step(item.step());
      taken =
          append(metrics_row(item.step())).and_then([&] { return write_dump(item.step().step()); });
      break;
    case proto::ReportItem::kEvaluation:
      show_evaluation(item.evaluation());
      taken = append(metrics_row(item.evaluation()));
      break;
    case proto::ReportItem::kWeights:
      taken = weights_.take(item.weights());
      break;
    case proto::ReportItem::kDumped:
      taken = dumps_[item.dumped().step()].take(item.dumped().chunk());
      break;
    case proto::ReportItem::kOutput:
      taken = take_output(item.output());
      break;
    case proto::ReportItem::kProfile:
      profile_ = item.profile();
      break;
    case proto::ReportItem::KIND_NOT_SET:
      break;
  }
  if (!taken) {
    give_error(taken.error());
  }
  return taken;
}

/// The step is over: what was dumped of it is all there will be.
Status Job::write_dump(std::uint64_t step) {
  const auto dump = dumps_.find(step);
  if (dump == dumps_.end()) {
    return {};
  }
  const Status written =
      dump->second.write(result_path(fmt::format("dump-step-{}.safetensors", step).c_str()));
  dumps_.erase(dump);
  dumps_due_.erase(step);
  return written;
}

/// Writes what came of a step that did not end, and names the steps that never began.
void Job::settle_dumps() {
  while (!dumps_.empty()) {
    const std::uint64_t step = dumps_.begin()->first;
    const std::size_t tensors = dumps_.begin()->second.keep_complete();
    const Status written = write_dump(step);
    console_.say(written ? fmt::format("dump-step-{}.safetensors has the {} tensors that step {} "
                                       "made before it broke off",
                                       step, tensors, step)
                         : written.error().message);
  }
  const bool ran = signal_ != 0 || progress_.steps() > 0;
  if (ran && !dumps_due_.empty()) {
    console_.say(
        fmt::format("report.dump-tensors: the job ended after step {}, so there is no dump "
                    "of step {}",
                    progress_.steps(), fmt::join(dumps_due_, ", ")));
  }
}

Status Job::take_output(const proto::OutputPiece& piece) {
  if (!outputs_) {
    POPRUN_ASSIGN(outputs_, NpyFile::create(result_path("outputs.npy"), piece.type(),
                                            std::vector<std::int64_t>{piece.shape().begin(),
                                                                      piece.shape().end()}));
  }
  POPRUN_TRY(outputs_->write(piece.offset(), piece.data()));
  const auto items = static_cast<std::uint64_t>(piece.shape(0));
  progress_.outputs(outputs_->rows_written(), items, monotonic_seconds());
  return {};
}

Status Job::on_report_end() {
  // Without the profile it was another instance's, or broke off: then nothing here is complete.
  if (!profile_ || phase_ == Phase::kStopping) {
    return {};
  }
  const auto write_all = [this]() -> Status {
    if (metrics_) {
      POPRUN_TRY(metrics_->flush());
    }
    if (options_.config.inference()) {
      POPRUN_TRY(outputs_ ? outputs_->finish() : fail(ErrorCode::kBug, "no outputs came"));
    } else {
      POPRUN_TRY(weights_.write(result_path("weights.safetensors")));
    }
    return write_profile(result_path("profile.json"), *profile_);
  };
  const Status written = write_all();
  results_safe_ = written.has_value();
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
  if (phase_ == Phase::kStopping || phase_ == Phase::kOver) {
    return;
  }
  const bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (clean && results_safe_) {
    // The signal's code, so that a script sees that training did not run to its end.
    stop(signal_ == 0 ? 0 : 128 + signal_, false);
    return;
  }
  if (state_.any_trouble()) {
    decide();
    return;
  }
  Verdict verdict;
  const std::string essential = router_.notices().essential();
  const bool started = std::ranges::any_of(state_.instances(), &InstanceView::joined);
  if (clean) {
    verdict.exit_code = kInfrastructure;
    verdict.first_line =
        "all instances ended without reporting their results; see " + result_path("logs");
  } else if (!started) {
    verdict.exit_code = static_cast<int>(ErrorCode::kUnreachable);
    verdict.first_line = fmt::format("no replica could be started: {}",
                                     essential.empty() ? "mpirun " + exit_text(status) : essential);
  } else {
    verdict.exit_code = is_infrastructure(status) ? kInfrastructure : WEXITSTATUS(status);
    verdict.first_line = fmt::format("mpirun {} at step {}{}{}", exit_text(status), state_.step(),
                                     essential.empty() ? "" : ": ", essential);
  }
  give_verdict(verdict);
}

void Job::on_data_server_exit(int status) {
  if (phase_ == Phase::kStopping || phase_ == Phase::kOver || results_safe_) {
    return;
  }
  std::string command = data_->restart_command();
  if (!token_is_users()) {
    // Not printed itself: it would end up in logs.
    command = fmt::format(
        "POPRUN_EMU_TOKEN=$(tr '\\0' '\\n' < /proc/{}/environ | sed -n s/^POPRUN_EMU_TOKEN=//p) {}",
        state_.instances()[0].pid, command);
  }
  console_.say(fmt::format(
      "the data server {}; replicas keep trying for {} s and lose nothing if it comes back: {}",
      exit_text(status), options_.hostio_timeout_seconds, command));
}

void Job::on_signal(int number) {
  if (number == SIGHUP && signal_ == SIGHUP) {
    return;  // A terminal that closes sends one, and its shell another.
  }
  if (signal_ != 0 || phase_ != Phase::kRunning) {
    // mpirun is left the moment it takes to clean up, once.
    const bool stopping = phase_ == Phase::kStopping;
    stop(stopping ? exit_code_ : 128 + number, /*at_once=*/stopping);
    return;
  }
  signal_ = number;
  if (progress_.steps() == 0) {
    console_.say(fmt::format("SIG{}: ending the job{}", sigabbrev_np(number),
                             options_.config.inference()
                                 ? "; outputs are kept only when all are there"
                                 : ", which has not done a step yet"));
    stop(128 + number, false);
    return;
  }
  console_.say(fmt::format(
      "SIG{}: finishing the step and saving the weights, {} s at most; once more to end at once",
      sigabbrev_np(number), kDrainSeconds));
  phase_ = Phase::kDraining;
  drain_until_ = monotonic_seconds() + kDrainSeconds;
  coordinator_->request_drain();
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
  if (metrics_unflushed_ && metrics_) {
    metrics_unflushed_ = false;
    if (const Status flushed = metrics_->flush(); !flushed) {
      give_error(flushed.error());
      return;
    }
  }
  // mpirun's words on a failure may come before anything else of it: they wait for the first cause.
  if (decide_at_ == 0 && now - held_since_ > kHoldSeconds) {
    router_.release_mpirun_lines();
  }
  show_progress(now);
  const bool still_joining = dataset_known_ && !state_.all_joined();
  if (decide_at_ != 0 && now >= decide_at_) {
    decide();
  } else if (decide_at_ == 0 && !state_.silent(now, options_.heartbeat_timeout_seconds).empty()) {
    // Those of one host fall silent together, but not within one tick.
    give_verdict(
        silence_verdict(state_, state_.silent(now, options_.heartbeat_timeout_seconds / 2), now));
  } else if (still_joining && now - launched_at_ > options_.collective_timeout_seconds) {
    give_verdict(absence_verdict(state_, now - launched_at_));
  } else if (phase_ == Phase::kDraining && now >= drain_until_) {
    console_.say(fmt::format("the job did not end its step within {} s; ending it without saving",
                             kDrainSeconds));
    stop(128 + signal_, false);
  } else if (options_.timeout_seconds > 0 && now - launched_at_ > options_.timeout_seconds) {
    Verdict verdict{kInfrastructure, "", meanwhile(state_, {}, now), std::nullopt};
    verdict.first_line = fmt::format(
        "the job is not done after {} s, the limit of --timeout; it was at step {} of {}",
        options_.timeout_seconds, state_.step(), progress_.total_steps());
    give_verdict(verdict);
  }
}

/// Something is wrong; wait a little for the news that explain it.
void Job::expect_details(double seconds) {
  if (phase_ == Phase::kStopping || phase_ == Phase::kOver) {
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
  if (phase_ == Phase::kStopping || phase_ == Phase::kOver) {
    return;
  }
  notice_own_silence(monotonic_seconds());
  // A log that is more than its own beginning has something to tell.
  const bool has_lines = verdict.instance && router_.has_lines(*verdict.instance);
  console_.say(has_lines ? fmt::format("{}; last lines in {}/{}", verdict.first_line,
                                       result_path("logs"), log_of(*verdict.instance))
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
  const std::string path = result_path("failure.txt");
  const std::string report = failure_report(state_, verdict, monotonic_seconds());
  const Status written = write_whole_file(path, {report});
  console_.err(written ? fmt::format("  what each replica did: {}", path)
                       : written.error().message);
}

void Job::give_error(const Error& error) {
  give_verdict({static_cast<int>(error.code), error.message, {}, std::nullopt});
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
  router_.release_mpirun_lines();
  settle_dumps();
  if (results_safe_) {
    if (progress_.done() > shown_done_ && !console_.has_live_line()) {
      console_.say(progress_.line(std::string::npos));  // Where the job really ended.
    }
    console_.out(summary(*profile_, options_.output_dir));
  }
  const auto end_loop = [this] { loop_.stop(); };
  if (coordinator_ == nullptr) {
    end_loop();
  } else {
    coordinator_->stop(end_loop);
  }
}

void Job::show_evaluation(const proto::EvaluationMetrics& metrics) {
  if (!options_.config.inference()) {
    const std::string accuracy =
        metrics.accuracy() < 0 ? ""
                               : fmt::format("test accuracy {:.2f} %, ", 100 * metrics.accuracy());
    console_.say(fmt::format("epoch {}, step {}: {}test loss {:.4f}, {} items", metrics.epoch(),
                             metrics.step(), accuracy, metrics.loss(), grouped(metrics.items())));
  }
}

void Job::show_shape(const proto::JobShape& shape) {
  progress_.shape(shape);
  const auto mebibytes = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const std::string work =
      options_.config.inference()
          ? fmt::format("inference, {} batches of {}", grouped(shape.total_steps()),
                        counted(shape.samples_per_step(), "sample"))
          : fmt::format("{} of {} ({} an epoch)", counted(shape.total_steps(), "step"),
                        counted(shape.samples_per_step(), "sample"),
                        grouped(shape.steps_per_epoch()));
  console_.say(fmt::format(
      "{} on {}: {} parameters, {}, {:.1f} of {:.1f} MiB an IPU", options_.config.model().name(),
      counted(placement_.num_replicas, "replica"), grouped(shape.parameter_count()), work,
      mebibytes(shape.planned_peak_bytes()), mebibytes(shape.memory_capacity_bytes())));
  for (const std::string& note : shape.notes()) {
    console_.say(fmt::format("note: {}", note));
  }
}

void Job::show_progress(double now) {
  if (console_.has_live_line()) {
    console_.live(progress_.line(console_.width() - 1));
  } else if (progress_.done() > shown_done_ &&
             (shown_done_ == 0 || now - shown_at_ >= kPlainProgressSeconds)) {
    shown_at_ = now;
    shown_done_ = progress_.done();
    console_.say(progress_.line(std::string::npos));
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

std::string Job::result_path(const char* name) const {
  return fmt::format("{}/{}", options_.output_dir, name);
}

}  // namespace poprun::launcher
