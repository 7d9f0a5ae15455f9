#include "launcher/outputs/job_results.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/outputs/answer_text.h"
#include "launcher/outputs/profile_file.h"
#include "replica/base/sha256.h"
#include "replica/base/text.h"
#include "replica/choices/choices.h"

namespace poprun::launcher {
namespace {

constexpr double kBetweenSavesSeconds = 1;
constexpr std::uint64_t kParametersMax = std::uint64_t{1} << 60;
constexpr std::uint64_t kBytesOfAParameterMax = 8;
// Space for running statistics and for the names and shapes of tensors, which the announced shape does not count.
constexpr std::uint64_t kOtherWeightBytesMax = std::uint64_t{64} << 20;
constexpr std::uint64_t kBytesOfATensor = 256;  // Per tensor, besides its data and name.
constexpr std::uint32_t kCheckedRunsMax = 65'536;
constexpr std::uint64_t kWaitingOutputBytesMax = std::uint64_t{256} << 20;

/// Copies a checkpoint's metrics.
Status take_metrics(const std::string& checkpoint, const std::string& folder) {
  const std::string from = fmt::format("{}/metrics.csv", checkpoint);
  const std::string to = fmt::format("{}/metrics.csv", folder);
  std::error_code error;
  std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing, error);
  if (!error) {  // The copy has the mode of the checkpoint's file, which may be read-only.
    std::filesystem::permissions(to, std::filesystem::perms::owner_write, std::filesystem::perm_options::add, error);
  }
  if (error) {
    return fail(ErrorCode::kInfrastructure,
                fmt::format("{} cannot be copied from {}: {}", to, checkpoint, error.message()));
  }
  return {};
}

proto::CheckCertificate certificate_of(const proto::CheckReport& check, const std::string& command) {
  proto::CheckCertificate certificate;
  certificate.set_version(check.version());
  certificate.set_command(command);
  const auto has = [&check](proto::CheckedRun::Verdict verdict) {
    return std::ranges::any_of(check.runs(), [verdict](const auto& run) { return run.verdict() == verdict; });
  };
  certificate.set_equal(has(proto::CheckedRun::REFERENCE) && !has(proto::CheckedRun::DIFFERENT));
  certificate.set_chip(check.config().device().ipu());
  certificate.set_replicas(check.config().topology().num_replicas());
  certificate.set_steps(check.plan().steps());
  *certificate.mutable_arithmetic() = check.plan().arithmetic();
  *certificate.mutable_dataset() = check.plan().dataset();
  *certificate.mutable_config() = check.config();
  certificate.mutable_config()->mutable_topology()->clear_instance_host();  // They change no bits.
  certificate.set_config_sha256(sha256_of(serialised(certificate.config())));
  for (int k = 0; k < check.runs_size(); ++k) {
    const proto::CheckedRun& run = check.runs(k);
    proto::CertifiedRun& certified = *certificate.add_runs();
    certified.set_combination(k < check.plan().combinations_size() ? check.plan().combinations(k) : "");
    certified.set_verdict(run.verdict());
    certified.set_detail(run.detail());
    certified.set_same_as(run.same_as());
    certified.set_program_sha256(run.program_sha256());
    certified.set_state_sha256(run.state_sha256());
    certified.set_values_compared(run.values_compared());
  }
  return certificate;
}

}  // namespace

JobResults::JobResults(DiskThread& disk, std::string folder, const proto::RunConfig& config)
    : disk_(disk), folder_(std::move(folder)), config_(config) {
  for (const proto::DumpRequest& request : config.report().dump_tensors()) {
    dumps_due_.insert(request.step());
  }
}

Status JobResults::on_disk(DiskThread::Task task) {
  look_at_disk();
  if (broken_) {
    return tl::unexpected<Error>{*broken_};
  }
  const std::shared_future<Status> done = disk_.post(std::move(task));
  if (late_.empty() && disk_.is_done(done)) {
    return done.get();
  }
  late_.push_back(done);
  return {};
}

/// Collects the results of late tasks that are now done.
void JobResults::look_at_disk() {
  constexpr std::chrono::seconds kNow{0};
  for (; !late_.empty() && late_.front().wait_for(kNow) == std::future_status::ready; late_.pop_front()) {
    if (const Status done = late_.front().get(); !done && !broken_) {
      broken_ = done.error();
    }
  }
}

std::string JobResults::path(std::string_view name) const {
  return fmt::format("{}/{}", folder_, name);
}

void JobResults::go_on_from(const std::string& checkpoint, std::uint64_t step) {
  resumed_ = checkpoint;
  std::erase_if(dumps_due_, [step](std::uint64_t due) { return due <= step; });
}

Status JobResults::begin() {
  const Status begun =
      on_disk([folder = folder_, kept = config_.model().initial_weights(), resumed = resumed_]() -> Status {
        POPRUN_TRY(clear_results(folder, kept, /*of_steps=*/resumed.empty()));
        return resumed.empty() ? Status{} : take_metrics(resumed, folder);
      });
  POPRUN_TRY(begun);
  if (!resumed_.empty()) {
    metrics_.emplace(disk_, path("metrics.csv"));
    metrics_->go_on();
  }
  return {};
}

Status JobResults::take(const proto::ReportItem& item) {
  look_at_disk();
  if (broken_) {
    return tl::unexpected<Error>{*broken_};
  }
  if (saving_) {
    return fail(ErrorCode::kBug, "an item arrived after the profile, which must be the last item of the report");
  }
  if (!item.has_shape() && !config_.has_check() && !std::exchange(begun_, true)) {
    POPRUN_TRY(begin());
  }
  switch (item.kind_case()) {
    case proto::ReportItem::kStep:
      append_metrics(metrics_row(item.step()));
      last_step_ = item.step().step();
      static_cast<void>(write_dumps(last_step_));  // Failed writes are retried later.
      return {};
    case proto::ReportItem::kEvaluation:
      append_metrics(metrics_row(item.evaluation()));
      return {};
    case proto::ReportItem::kWeights:
      return config_.has_profile() ? Status{} : take_weights(item.weights());
    case proto::ReportItem::kDumped:
      return take_dump(item.dumped());
    case proto::ReportItem::kOutput:
      return config_.has_profile() ? Status{} : take_output(item.output());
    case proto::ReportItem::kProfile:
      profile_ = item.profile();
      return {};
    case proto::ReportItem::kShape:
      parameters_ = std::min(item.shape().parameter_count(), kParametersMax);
      return check_room_for_weights();
    case proto::ReportItem::kCheckPlan:
      return begin_check(item.check_plan());
    case proto::ReportItem::kCheckedRun:
      return take_run(item.checked_run());
    case proto::ReportItem::kNote:
    case proto::ReportItem::kTraced:
    case proto::ReportItem::KIND_NOT_SET:
      return {};
  }
  return {};
}

/// Collects weights up to a bound, since a broken replica may never stop sending. The disk has room for all parameters.
Status JobResults::take_weights(const proto::TensorChunk& chunk) {
  const std::uint64_t most = kBytesOfAParameterMax * parameters_ + kOtherWeightBytesMax;
  const std::uint64_t bytes = chunk.data().size() + chunk.name().size() + kBytesOfATensor;
  if (bytes > most - weight_bytes_) {
    return fail(ErrorCode::kBug,
                fmt::format("weights: more than {} B arrived for a model of {} parameters", most, parameters_));
  }
  weight_bytes_ += bytes;
  return weights_.take(chunk);
}

Status JobResults::take_dump(const proto::DumpedChunk& dumped) {
  if (!dumps_due_.contains(dumped.step())) {
    return fail(ErrorCode::kBug,
                fmt::format("a dump of step {} arrived, which report.dump-tensors did not request", dumped.step()));
  }
  return dumps_[dumped.step()].tensors->take(dumped.chunk());
}

Status JobResults::take_run(const proto::CheckedRun& run) {
  if (check_.runs_size() >= static_cast<int>(check_.plan().runs())) {
    return fail(ErrorCode::kBug,
                fmt::format("more than the {} runs of the check's plan arrived", check_.plan().runs()));
  }
  *check_.add_runs() = run;
  return {};
}

Status JobResults::begin_check(const proto::CheckPlan& plan) {
  if (plan.runs() > kCheckedRunsMax) {
    return fail(ErrorCode::kBug,
                fmt::format("the check's plan has {} runs, but at most {} are allowed", plan.runs(), kCheckedRunsMax));
  }
  check_.set_version(POPRUN_VERSION);
  *check_.mutable_config() = config_;
  *check_.mutable_plan() = plan;
  return on_disk([failure = path(traces_of(config_).failure)]() -> Status {
    std::error_code unused;
    std::filesystem::remove(failure, unused);
    return {};
  });
}

/// Writes check.json and the certificate, if one was requested. If runs are missing, leaves the check.json of an
/// earlier check in place.
void JobResults::finish_check() {
  if (check_.runs_size() == 0 || check_.runs_size() < static_cast<int>(check_.plan().runs())) {
    return;
  }
  saving_.emplace(disk_, [this](const std::atomic<bool>& given_up) -> Status {
    POPRUN_ASSIGN(const std::string json, message_json(check_));
    POPRUN_TRY(write_whole_file(path("check.json"), {json}, &given_up));
    if (certificate_.path.empty()) {
      return {};
    }
    const std::string certificate = json_text(certificate_of(check_, certificate_.command));
    return write_whole_file(certificate_.path, {certificate}, &given_up);
  });
}

/// Checks that the disk has space for the weights, now rather than after the last step.
Status JobResults::check_room_for_weights() {
  if (config_.inference() || config_.has_profile()) {
    return {};
  }
  const std::uint64_t bytes = choice_of<Precision>(config_.model().precision()) == Precision::kHalf ? 2 : 4;
  return on_disk([folder = folder_, needed = parameters_ * bytes] { return check_room(folder, needed); });
}

void JobResults::append_metrics(const std::string& row) {
  if (!metrics_) {
    metrics_.emplace(disk_, path("metrics.csv"));
    metrics_->append(metrics_header());
  }
  metrics_wait_ = true;
  metrics_->append(row);
}

Status JobResults::take_output(const proto::OutputPiece& piece) {
  if (!outputs_) {
    outputs_ = std::make_shared<Outputs>();
    const std::vector<std::int64_t> shape{piece.shape().begin(), piece.shape().end()};
    const Status created =
        on_disk([outputs = outputs_, to = path("outputs.npy"), type = piece.type(), shape]() -> Status {
          POPRUN_ASSIGN(outputs->file, NpyFile::create(to, type, shape));
          return {};
        });
    POPRUN_TRY(created);
  }
  if (outputs_->waiting_bytes > kWaitingOutputBytesMax) {
    return fail(ErrorCode::kInfrastructure,
                fmt::format("{}: the disk has not responded for {:.0f} s, and more than {} of outputs wait for it",
                            path("outputs.npy"), disk_.busy_seconds(), mebibytes_text(kWaitingOutputBytesMax)));
  }
  outputs_->waiting_bytes += piece.data().size();
  return on_disk([outputs = outputs_, offset = piece.offset(), data = piece.data()]() -> Status {
    outputs->waiting_bytes -= data.size();
    if (!outputs->file) {
      return {};  // The file could not be created, and that error is reported.
    }
    POPRUN_TRY(outputs->file->write(offset, data));
    outputs->rows = outputs->file->rows_written();
    return {};
  });
}

/// Begins to write a dump unless its write has begun already, and then checks whether the write has ended.
Status JobResults::write_dump(std::uint64_t step, Dump& dump) {
  if (!dump.writing.valid()) {
    dump.tensors->sort_by_name();
    dump.writing = disk_.post([tensors = dump.tensors, to = path(fmt::format("dump-step-{}.safetensors", step))] {
      return tensors->write(to);
    });
  }
  return disk_.is_done(dump.writing) ? std::exchange(dump.writing, {}).get() : Status{};
}

/// Writes the dumps of steps up to `up_to_step`. These steps have ended, so their dumps are complete.
Status JobResults::write_dumps(std::uint64_t up_to_step) {
  while (!dumps_.empty() && dumps_.begin()->first <= up_to_step) {
    auto& [step, dump] = *dumps_.begin();
    POPRUN_TRY(write_dump(step, dump));
    if (dump.writing.valid()) {
      return {};  // The disk is slow.
    }
    dumps_due_.erase(step);
    dumps_.erase(dumps_.begin());
  }
  return {};
}

Status JobResults::refresh(double now) {
  if (saving_) {
    saving_->refresh(now);
    return {};
  }
  if (metrics_wait_) {
    const Status flushed = metrics_->flush();
    metrics_refused_ = !flushed;
    metrics_wait_ = !metrics_->flushed();
    POPRUN_TRY(flushed);
  }
  if (now - dumps_failed_at_ < kBetweenSavesSeconds) {
    return {};
  }
  Status dumped = write_dumps(last_step_);
  dumps_failed_at_ = dumped ? dumps_failed_at_ : now;
  return dumped;
}

void JobResults::hand_over() {
  if (metrics_) {
    metrics_->hand_over();
  }
}

Status JobResults::finish(const std::optional<proto::Goodput>& goodput) {
  report_over_ = true;
  if (config_.has_check()) {
    finish_check();
    return {};
  }
  if (!profile_) {
    return {};
  }
  if (config_.inference() ? !outputs_ && !config_.has_profile() : !weights_.complete()) {
    return fail(ErrorCode::kBug, config_.inference() ? "no outputs arrived" : "weights: the last tensor is incomplete");
  }
  if (goodput) {
    *profile_->mutable_goodput() = *goodput;
  }
  if (metrics_) {
    metrics_->hand_over();  // write_complete_files reports the error.
  }
  saving_.emplace(disk_, [this](const std::atomic<bool>& given_up) { return write_complete_files(given_up); });
  return {};
}

/// Runs on the disk's thread. First writes the results that cannot be reproduced.
Status JobResults::write_complete_files(const std::atomic<bool>& given_up) {
  // The folder is recreated if the user has since removed it, so that the results are not lost as well.
  static_cast<void>(make_folder(folder_));
  POPRUN_TRY(fence_());
  if (!main_file_written_ && !config_.has_profile()) {
    POPRUN_TRY(config_.inference() ? outputs_->file.value().finish()
                                   : weights_.write(path("weights.safetensors"), &given_up));
    main_file_written_ = true;
  }
  if (metrics_) {
    POPRUN_TRY(metrics_->finish());  // Writing the profile, below, syncs the folder.
  }
  if (config_.has_profile()) {
    return {};  // `poprun-emu profile` writes the profile itself, with more figures.
  }
  POPRUN_ASSIGN(const std::string json, message_json(*profile_));
  return write_whole_file(path("profile.json"), {json}, &given_up);
}

std::vector<std::string> JobResults::settle_dumps(std::optional<std::uint64_t> ended_after) {
  std::vector<std::string> lines;
  if (const Status written = write_dumps(last_step_); !written) {
    lines.push_back(written.error().message);
  }
  for (; !dumps_.empty(); dumps_.erase(dumps_.begin())) {
    auto& [step, dump] = *dumps_.begin();
    const bool is_complete = dump.writing.valid();
    const std::size_t tensors = is_complete ? 0 : dump.tensors->keep_complete();
    const Status written = write_dump(step, dump);
    dumps_due_.erase(step);
    lines.push_back(
        !written               ? written.error().message
        : dump.writing.valid() ? fmt::format("dump-step-{}.safetensors is still being written", step)
        : is_complete
            ? fmt::format("dump-step-{}.safetensors is complete", step)
            : fmt::format("dump-step-{}.safetensors contains only what step {} computed before the job ended: {}", step,
                          step, counted(tensors, "tensor")));
  }
  if (ended_after && !dumps_due_.empty()) {
    lines.push_back(fmt::format("report.dump-tensors: the job ended after step {}, so there is no dump of step {}",
                                *ended_after, fmt::join(dumps_due_, ", ")));
  }
  return lines;
}

}  // namespace poprun::launcher
