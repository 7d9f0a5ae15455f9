#include "launcher/outputs/job_results.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace poprun::launcher {

JobResults::JobResults(std::string folder, const proto::RunConfig& config)
    : folder_(std::move(folder)), config_(config) {
  for (const proto::DumpRequest& request : config.report().dump_tensors()) {
    dumps_due_.insert(request.step());
  }
}

std::string JobResults::path(std::string_view name) const {
  return fmt::format("{}/{}", folder_, name);
}

Status JobResults::take(const proto::ReportItem& item) {
  if (!item.has_shape() && !std::exchange(begun_, true)) {
    POPRUN_TRY(clear_results(folder_, config_.model().initial_weights()));
  }
  switch (item.kind_case()) {
    case proto::ReportItem::kStep:
      POPRUN_TRY(append_metrics(metrics_row(item.step())));
      return write_dump(item.step().step());
    case proto::ReportItem::kEvaluation:
      return append_metrics(metrics_row(item.evaluation()));
    case proto::ReportItem::kWeights:
      return weights_.take(item.weights());
    case proto::ReportItem::kDumped:
      return dumps_[item.dumped().step()].take(item.dumped().chunk());
    case proto::ReportItem::kOutput:
      return take_output(item.output());
    case proto::ReportItem::kProfile:
      profile_ = item.profile();
      return {};
    case proto::ReportItem::kShape:
      return check_room_for(item.shape());
    case proto::ReportItem::KIND_NOT_SET:
      return {};
  }
  return {};
}

/// Better now than after the last step.
Status JobResults::check_room_for(const proto::JobShape& shape) const {
  const std::uint64_t bytes = config_.model().precision() == "half" ? 2 : 4;
  return config_.inference() ? Status{} : check_room(folder_, shape.parameter_count() * bytes);
}

Status JobResults::append_metrics(const std::string& row) {
  if (!metrics_) {
    POPRUN_ASSIGN(metrics_, GrowingFile::open(path("metrics.csv")));
    POPRUN_TRY(metrics_->append(metrics_header()));
  }
  metrics_unflushed_ = true;
  return metrics_->append(row);
}

Status JobResults::take_output(const proto::OutputPiece& piece) {
  if (!outputs_) {
    POPRUN_ASSIGN(outputs_, NpyFile::create(path("outputs.npy"), piece.type(),
                                            std::vector<std::int64_t>{piece.shape().begin(),
                                                                      piece.shape().end()}));
  }
  return outputs_->write(piece.offset(), piece.data());
}

/// The step is over: what was dumped of it is all there will be.
Status JobResults::write_dump(std::uint64_t step) {
  const auto dump = dumps_.find(step);
  if (dump == dumps_.end()) {
    return {};
  }
  Status written = dump->second.write(path(fmt::format("dump-step-{}.safetensors", step)));
  dumps_.erase(dump);
  dumps_due_.erase(step);
  return written;
}

Status JobResults::flush() {
  return std::exchange(metrics_unflushed_, false) ? metrics_->flush() : Status{};
}

Status JobResults::finish() {
  report_over_ = true;
  if (!profile_) {
    return {};
  }
  Status written = write_complete_files();
  complete_ = written.has_value();
  return written;
}

Status JobResults::write_complete_files() {
  // Who removed the folder meanwhile does not lose the training, too.
  std::error_code unused;
  std::filesystem::create_directories(folder_, unused);
  if (metrics_) {
    POPRUN_TRY(metrics_->flush());
  }
  if (config_.inference()) {
    POPRUN_TRY(outputs_ ? outputs_->finish() : fail(ErrorCode::kBug, "no outputs came"));
  } else {
    POPRUN_TRY(weights_.write(path("weights.safetensors")));
  }
  return write_profile(path("profile.json"), *profile_);
}

std::uint64_t JobResults::items_written() const {
  return outputs_ ? outputs_->rows_written() : 0;
}

std::vector<std::string> JobResults::settle_dumps(std::optional<std::uint64_t> ended_after) {
  std::vector<std::string> lines;
  while (!dumps_.empty()) {
    const std::uint64_t step = dumps_.begin()->first;
    const std::size_t tensors = dumps_.begin()->second.keep_complete();
    const Status written = write_dump(step);
    lines.push_back(written ? fmt::format("dump-step-{}.safetensors has the {} tensors that step "
                                          "{} made before it broke off",
                                          step, tensors, step)
                            : written.error().message);
  }
  if (ended_after && !dumps_due_.empty()) {
    lines.push_back(
        fmt::format("report.dump-tensors: the job ended after step {}, so there is no dump of "
                    "step {}",
                    *ended_after, fmt::join(dumps_due_, ", ")));
  }
  return lines;
}

}  // namespace poprun::launcher
