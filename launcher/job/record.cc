#include "launcher/job/record.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/job/reports.h"
#include "launcher/outputs/growing_file.h"
#include "launcher/outputs/profile_file.h"
#include "launcher/outputs/read_file.h"
#include "launcher/placement/hosts.h"
#include "launcher/screen/job_answer.h"
#include "launcher/screen/summary.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr double kDiskPatienceSeconds = 5;

}  // namespace

JobRecord::JobRecord(World& world, const Options& options, const Placement& placement, Console& console,
                     FolderLock& folder)
    : options_(options),
      placement_(placement),
      console_(console),
      folder_(folder),
      display_(console, options.config, options.form != AnswerForm::kText),
      disk_(world.disk()),
      results_(*disk_, options.output.dir, options.config),
      logs_(*disk_, logs_folder(), placement.num_replicas),
      samples_(*disk_, results_.path(kReplicaSamples), placement.num_replicas),
      router_(console, logs_, placement_,
              {.only_instance = options.output.only_instance,
               .show_mpirun = options.verbosity > 0,
               .show_info = options.verbosity > 0}) {
  if (const auto* check = std::get_if<CheckRequest>(&options.request); check && !check->certificate.empty()) {
    results_.certify(check->certificate, fmt::format("poprun-emu {}", fmt::join(options.command, " ")));
  }
}

Status JobRecord::take_folder(const std::optional<Checkpoint>& resumed, bool goes_on, bool is_restart) {
  const bool leaves_results_alone = options_.config.has_check();
  // Files left by an attempt that never reached its first checkpoint do not count as results.
  const bool is_own = goes_on && (resumed || !size_of_file(results_.path("profile.json")));
  POPRUN_ASSIGN(folder_,
                take_output_folder(options_.output.dir, options_.output.overwrite || leaves_results_alone || is_own,
                                   traces_of(options_.config).logs, is_own || is_restart, std::move(folder_)));
  results_.fence([this] { return folder_.check(); });
  if (is_own || is_restart) {
    samples_.go_on();
  }
  if (resumed) {
    results_.go_on_from(resumed->folder, resumed->manifest.host().step());
  }
  return {};
}

void JobRecord::prepare_trace(const std::optional<Checkpoint>& resumed, bool is_traced) {
  const std::uint64_t last = options_.config.report().trace_last();
  if (last == 0 || is_traced || options_.config.has_check()) {
    return;
  }
  if (resumed && resumed->manifest.host().step() >= last) {
    console_.say(fmt::format("note: report.trace-steps has no effect: the job resumes after step {}",
                             resumed->manifest.host().step()));
    return;
  }
  std::vector<std::uint32_t> host_of;
  for (std::uint32_t r = 0; r < placement_.num_replicas; ++r) {
    host_of.push_back(placement_.instance_host[placement_.instance_of(r)]);
  }
  trace_.emplace(RunTrace::Setup{.last_step = last, .hosts = placement_.hosts, .host_of = std::move(host_of)});
}

Status JobRecord::prepare_tensorboard(const std::optional<Checkpoint>& resumed) {
  const std::string& folder = options_.output.tensorboard;
  if (folder.empty()) {
    return {};
  }
  if (options_.config.inference() || options_.config.has_check()) {
    console_.say(fmt::format("note: --tensorboard {} has no effect: {} reports no training steps", folder,
                             options_.config.inference() ? "inference" : "a check"));
    return {};
  }
  if (const std::error_code error = make_folder(folder)) {
    return fail(ErrorCode::kUsage,
                fmt::format("--tensorboard {}: this folder cannot be created: {}", folder, error.message()));
  }
  tensorboard_.emplace(*disk_, TensorboardFile::Setup{.folder = folder,
                                                      .name_end = fmt::format("{}.{}", machine_name(), folder_.epoch()),
                                                      .resumed_step = resumed ? resumed->manifest.host().step() : 0});
  return {};
}

void JobRecord::begin_logs(std::uint32_t instance, const InstanceView& view) {
  const std::uint32_t local = placement_.replicas_per_instance();
  for (std::uint32_t r = instance * local; r < (instance + 1) * local; ++r) {
    logs_.write(r, fmt::format("# replica {}: instance {}, host {}, pid {}", r, instance, view.host, view.pid));
  }
}

Status JobRecord::take(const proto::ReportItem& item, bool shows, double now) {
  if (shows) {
    display_.take(item);
  }
  POPRUN_TRY(results_.take(item));
  if (tensorboard_) {
    tensorboard_->take(item, unix_seconds());
  }
  if (trace_ && !trace_file_) {
    if (item.has_shape()) {
      trace_->limit_to(item.shape().total_steps());
    }
    trace_->take(item.traced());
    if (trace_->complete()) {
      write_trace();
    }
  }
  if (item.has_output()) {
    const auto items = static_cast<std::uint64_t>(item.output().shape(0));
    display_.outputs(results_.items_written(), items, now);
  }
  return {};
}

/// Replica 0 represents all replicas, because it saves the results, and because the others stop when replica 0 stops.
std::string JobRecord::awaited(const JobState& state, double now) const {
  if (results_.reported()) {
    return "writing the results";
  }
  const ReplicaView& first = state.instances()[0].replicas[0];
  return fmt::format("replica 0: {} for {:.0f} s", first.activity.empty() ? "computing" : first.activity,
                     std::max(0.0, now - first.since));
}

std::string JobRecord::how_far(const JobState& state) const {
  if (options_.config.has_check()) {
    const proto::CheckReport& check = results_.check();
    const std::uint32_t runs = check.plan().runs();
    return runs == 0 ? "had not finished planning"
                     : fmt::format("had finished {} of {}", check.runs_size(), counted(runs, "run"));
  }
  return state.step() == 0 ? "had not completed a step"
                           : fmt::format("was at step {} of {} at its last heartbeats", state.step(), total_steps());
}

void JobRecord::refresh(double now) {
  const Status results = results_.refresh(now);
  const Status logs = logs_.flush();
  samples_.flush();
  const Status events = tensorboard_ ? tensorboard_->flush() : Status{};
  const Status trace = trace_file_ && !trace_file_->flushed() ? trace_file_->flush() : Status{};
  const double busy = disk_->busy_seconds();
  const Status responds =
      busy < kDiskPatienceSeconds || results_.reported()
          ? Status{}
          : fail(ErrorCode::kInfrastructure,
                 fmt::format("the disk that holds {} has not responded for {:.0f} s", options_.output.dir, busy));
  tell_of_disk(!results ? results : !logs ? logs : !events ? events : !trace ? trace : responds, now);
  display_.refresh(now);
}

std::string JobRecord::check_files_text() const {
  const std::string& certificate = std::get<CheckRequest>(options_.request).certificate;
  return fmt::format("results in {}{}\n", results_.path("check.json"),
                     certificate.empty() ? "" : fmt::format(", certificate in {}", certificate));
}

void JobRecord::write_trace() {
  trace_file_.emplace(*disk_, results_.path(kTraceFile), GrowingFile::Unit::kRecord);
  trace_file_->append(trace_->file());
}

/// Writes the trace unless that has been done, and reports its path.
void JobRecord::close_trace() {
  if (!trace_) {
    return;
  }
  if (trace_->empty()) {
    if (results_.complete()) {
      console_.say(fmt::format(
          "note: the job ended after step {}, before the steps of report.trace-steps; no trace was written", steps()));
    }
    return;
  }
  if (!trace_file_) {
    write_trace();
  }
  const Status written = trace_file_->flush();
  trace_file_->hand_over();
  const std::string left_out =
      trace_->left_out() == 0 ? "" : fmt::format("; {} left out", counted(trace_->left_out(), "slice"));
  console_.say(written ? fmt::format("trace of {} in {}{}", trace_->text(), results_.path(kTraceFile), left_out)
                       : fmt::format("note: {}; the trace is incomplete", written.error().message));
}

void JobRecord::tell_of_disk(const Status& written, double now) {
  constexpr double kBetweenDiskNotesSeconds = 60;
  if (written) {
    if (std::exchange(disk_full_, false)) {
      console_.say(fmt::format("note: writing to {} works again", options_.output.dir));
    }
  } else if (!disk_full_ && now - disk_told_at_.value_or(-kBetweenDiskNotesSeconds) >= kBetweenDiskNotesSeconds) {
    disk_full_ = true;
    disk_told_at_ = now;
    console_.say(
        fmt::format("note: {}; the job continues, and unwritten results are held in memory", written.error().message));
  }
}

void JobRecord::tell(const Verdict& verdict, const JobState& state, double now) {
  // The message names the log only if the log contains more than its first line, which the launcher wrote.
  const bool has_lines = verdict.instance && router_.has_lines(*verdict.instance);
  console_.complain(has_lines ? fmt::format("{}; last lines in {}", verdict.first_line,
                                            logs_.path(*verdict.instance * placement_.replicas_per_instance()))
                              : verdict.first_line);
  for (const std::string& line : verdict.more) {
    console_.err(line);
  }
  write_failure(verdict, state, now);
  if (verdict.instance) {
    for (const std::string& line : router_.hidden_lines(*verdict.instance)) {
      console_.err(line);
    }
  }
  router_.release_mpirun_lines();
}

void JobRecord::write_failure(const Verdict& verdict, const JobState& state, double now) {
  const bool is_usage = verdict.exit_code == exit_code_of(ErrorCode::kUsage);
  if (is_usage || std::ranges::none_of(state.instances(), &InstanceView::joined)) {
    return;
  }
  constexpr std::chrono::seconds kPatience{2};
  const std::string path = results_.path(traces_of(options_.config).failure);
  const std::shared_future<Status> writing =
      disk_->post([path, text = failure_report(state, verdict, now)] { return write_whole_file(path, {text}); });
  if (!disk_->is_done(writing, kPatience)) {
    console_.err(fmt::format("  what each replica did: {} (once the disk responds)", path));
  } else if (const Status written = writing.get(); written) {
    console_.err(fmt::format("  what each replica did: {}", path));
  } else {
    console_.err(written.error().message);
  }
}

void JobRecord::when_written(std::function<void()> done) {
  disk_->post([done = std::move(done)]() -> Status {
    done();
    return {};
  });
}

void JobRecord::close(bool ended_early, const std::string& checkpoints) {
  if (tensorboard_) {
    if (const Status written = tensorboard_->flush(); !written) {
      console_.say(fmt::format("note: {}; some of the last results are missing there", written.error().message));
    }
    tensorboard_->hand_over();
  }
  results_.hand_over();
  logs_.hand_over();
  close_trace();
  router_.release_mpirun_lines();
  const bool ran = ended_early || steps() > 0;
  for (const std::string& line : results_.settle_dumps(ran ? std::optional(steps()) : std::nullopt)) {
    console_.say(line);
  }
  const bool is_text = options_.form == AnswerForm::kText;
  if (results_.check().runs_size() > 0 && is_text) {
    console_.out(check_result(results_.check()));
  }
  if (!results_.complete()) {
    return;
  }
  if (options_.config.has_check()) {
    console_.out(is_text ? check_files_text() : answer_text(results_.check(), options_.form));
    return;
  }
  display_.end();
  if (options_.config.has_profile()) {
    return;
  }
  console_.out(is_text ? summary(results_.profile(), options_.output.dir, checkpoints)
                       : answer_text(job_answer(results_.profile()), options_.form));
}

}  // namespace poprun::launcher
