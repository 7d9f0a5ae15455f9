#include "replica/link/launcher_reports.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "replica/link/launcher_link.h"

namespace poprun {
namespace {

constexpr std::size_t kChunkBytes = 1 << 20;

/// StepMetrics and EvaluationMetrics share these fields with StepReport and EvaluationReport.
template <typename Metrics, typename Report>
void fill(Metrics& metrics, const Report& report) {
  metrics.set_step(report.step);
  metrics.set_epoch(report.epoch);
  metrics.set_loss(report.loss);
  metrics.set_accuracy(report.accuracy);
  metrics.set_wall_seconds(report.wall_seconds);
  metrics.set_device_seconds(report.device_seconds);
}

/// Calls `take` with each piece of a tensor.
template <typename Take>
void for_chunks(std::string_view name, std::string_view type, std::span<const std::int64_t> shape,
                std::span<const std::byte> data, Take take) {
  std::size_t sent = 0;
  do {
    const auto piece = data.subspan(sent, std::min(kChunkBytes, data.size() - sent));
    sent += piece.size();
    proto::TensorChunk chunk;
    chunk.set_name(std::string{name});
    chunk.set_type(std::string{type});
    chunk.mutable_shape()->Add(shape.begin(), shape.end());
    chunk.set_data(piece.data(), piece.size());
    chunk.set_last(sent == data.size());
    take(std::move(chunk));
  } while (sent < data.size());
}

}  // namespace

void LauncherReporter::step(const StepReport& report) {
  proto::ReportItem item;
  fill(*item.mutable_step(), report);
  send(std::move(item));
}

void LauncherReporter::evaluation(const EvaluationReport& report) {
  proto::ReportItem item;
  fill(*item.mutable_evaluation(), report);
  item.mutable_evaluation()->set_items(report.items);
  send(std::move(item));
}

void LauncherReporter::note(const proto::Note& note) {
  proto::ReportItem item;
  *item.mutable_note() = note;
  send(std::move(item));
}

void LauncherReporter::weights(std::string_view name, std::string_view type, std::span<const std::int64_t> shape,
                               std::span<const std::byte> data) {
  for_chunks(name, type, shape, data, [this](proto::TensorChunk chunk) {
    proto::ReportItem item;
    *item.mutable_weights() = std::move(chunk);
    send(std::move(item));
  });
}

void LauncherReporter::dump(std::uint64_t step, std::string_view name, std::string_view type,
                            std::span<const std::int64_t> shape, std::span<const std::byte> data) {
  for_chunks(name, type, shape, data, [this, step](proto::TensorChunk chunk) {
    proto::ReportItem item;
    item.mutable_dumped()->set_step(step);
    *item.mutable_dumped()->mutable_chunk() = std::move(chunk);
    send(std::move(item));
  });
}

void LauncherReporter::send(proto::ReportItem item) {
  if (status_) {
    status_ = client_.report(std::move(item));
  }
}

Status LauncherOutfeed::push(std::uint64_t batch, std::string_view type, std::span<const std::int64_t> shape,
                             std::span<const std::byte> data) {
  std::vector<std::uint64_t> items(static_cast<std::size_t>(shape[0]));
  const std::size_t counted = items_of_(batch, items);
  const std::size_t row_bytes = data.size() / items.size();
  for (std::size_t row = 0; row < counted; ++row) {
    for (std::size_t sent = 0; sent < row_bytes; sent += kPieceBytes) {
      const auto piece = data.subspan(row * row_bytes + sent, std::min(kPieceBytes, row_bytes - sent));
      proto::ReportItem report;
      proto::OutputPiece& output = *report.mutable_output();
      output.set_type(std::string{type});
      output.mutable_shape()->Add(shape.begin(), shape.end());
      output.set_shape(0, static_cast<std::int64_t>(items_));
      output.set_offset(items[row] * row_bytes + sent);
      output.set_data(piece.data(), piece.size());
      POPRUN_TRY(client_.report(std::move(report)));
    }
  }
  return {};
}

}  // namespace poprun
