#include "launcher/outputs/job_results.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/outputs/profile_file.h"
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

}  // namespace

JobResults::JobResults(std::string folder, const proto::RunConfig& config)
    : folder_(std::move(folder)), config_(config) {
  for (const proto::DumpRequest& request : config.report().dump_tensors()) {
    dumps_due_.insert(request.step());
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
  POPRUN_TRY(clear_results(folder_, config_.model().initial_weights(), /*dumps=*/resumed_.empty()));
  if (resumed_.empty()) {
    return {};
  }
  std::error_code error;
  std::filesystem::copy_file(fmt::format("{}/metrics.csv", resumed_), path("metrics.csv"),
                             std::filesystem::copy_options::overwrite_existing, error);
  if (!error) {  // The copy has the mode of the checkpoint's file, which may be read-only.
    std::filesystem::permissions(path("metrics.csv"), std::filesystem::perms::owner_write,
                                 std::filesystem::perm_options::add, error);
  }
  if (error) {
    return fail(ErrorCode::kInfrastructure,
                fmt::format("{} cannot be copied from {}: {}", path("metrics.csv"), resumed_, error.message()));
  }
  metrics_.emplace(path("metrics.csv"));
  metrics_->go_on();
  return {};
}

Status JobResults::take(const proto::ReportItem& item) {
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
  return dumps_[dumped.step()].take(dumped.chunk());
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
  std::error_code unused;
  std::filesystem::remove(path(traces_of(config_).failure), unused);
  return {};
}

/// Writes check.json. If runs are missing, leaves the check.json of an earlier check in place.
void JobResults::finish_check() {
  if (check_.runs_size() == 0 || check_.runs_size() < static_cast<int>(check_.plan().runs())) {
    return;
  }
  saving_.emplace([this](const std::atomic<bool>& given_up) -> Status {
    POPRUN_ASSIGN(const std::string json, message_json(check_));
    return write_whole_file(path("check.json"), {json}, &given_up);
  });
}

/// Checks that the disk has space for the weights, now rather than after the last step.
Status JobResults::check_room_for_weights() const {
  const std::uint64_t bytes = choice_of<Precision>(config_.model().precision()) == Precision::kHalf ? 2 : 4;
  return config_.inference() || config_.has_profile() ? Status{} : check_room(folder_, parameters_ * bytes);
}

void JobResults::append_metrics(const std::string& row) {
  if (!metrics_) {
    metrics_.emplace(path("metrics.csv"));
    metrics_->append(metrics_header());
  }
  metrics_wait_ = true;
  metrics_->append(row);
}

Status JobResults::take_output(const proto::OutputPiece& piece) {
  if (!outputs_) {
    POPRUN_ASSIGN(outputs_, NpyFile::create(path("outputs.npy"), piece.type(),
                                            std::vector<std::int64_t>{piece.shape().begin(), piece.shape().end()}));
  }
  return outputs_->write(piece.offset(), piece.data());
}

/// Writes the dumps of steps up to `up_to_step`. These steps have ended, so their dumps are complete.
Status JobResults::write_dumps(std::uint64_t up_to_step) {
  while (!dumps_.empty() && dumps_.begin()->first <= up_to_step) {
    auto& [step, dump] = *dumps_.begin();
    dump.sort_by_name();
    POPRUN_TRY(dump.write(path(fmt::format("dump-step-{}.safetensors", step))));
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
    POPRUN_TRY(metrics_->flush());
    metrics_wait_ = false;
  }
  if (now - dumps_failed_at_ < kBetweenSavesSeconds) {
    return {};
  }
  Status dumped = write_dumps(last_step_);
  dumps_failed_at_ = dumped ? dumps_failed_at_ : now;
  return dumped;
}

Status JobResults::finish() {
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
  saving_.emplace([this](const std::atomic<bool>& given_up) { return write_complete_files(given_up); });
  return {};
}

/// Runs in the thread of `saving_`. First writes the results that cannot be reproduced.
Status JobResults::write_complete_files(const std::atomic<bool>& given_up) {
  // The folder is recreated if the user has since removed it, so that the results are not lost, too.
  std::error_code unused;
  std::filesystem::create_directories(folder_, unused);
  if (!main_file_written_ && !config_.has_profile()) {
    POPRUN_TRY(config_.inference() ? outputs_->finish() : weights_.write(path("weights.safetensors"), &given_up));
    main_file_written_ = true;
  }
  if (metrics_) {
    POPRUN_TRY(metrics_->flush());
  }
  if (config_.has_profile()) {
    return {};  // `poprun-emu profile` writes the profile itself, with more figures.
  }
  POPRUN_ASSIGN(const std::string json, message_json(*profile_));
  return write_whole_file(path("profile.json"), {json}, &given_up);
}

std::uint64_t JobResults::items_written() const {
  return outputs_ ? outputs_->rows_written() : 0;
}

std::vector<std::string> JobResults::settle_dumps(std::optional<std::uint64_t> ended_after) {
  std::vector<std::string> lines;
  if (const Status written = write_dumps(last_step_); !written) {
    lines.push_back(written.error().message);
  }
  for (; !dumps_.empty(); dumps_.erase(dumps_.begin())) {
    auto& [step, dump] = *dumps_.begin();
    const std::size_t tensors = dump.keep_complete();
    dump.sort_by_name();
    const Status written = dump.write(path(fmt::format("dump-step-{}.safetensors", step)));
    dumps_due_.erase(step);
    lines.push_back(
        !written
            ? written.error().message
            : fmt::format("dump-step-{}.safetensors contains the {} tensors that step {} computed before the job ended",
                          step, tensors, step));
  }
  if (ended_after && !dumps_due_.empty()) {
    lines.push_back(fmt::format("report.dump-tensors: the job ended after step {}, so there is no dump of step {}",
                                *ended_after, fmt::join(dumps_due_, ", ")));
  }
  return lines;
}

}  // namespace poprun::launcher
