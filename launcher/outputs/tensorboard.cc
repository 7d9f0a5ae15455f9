#include "launcher/outputs/tensorboard.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

namespace poprun::launcher {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, reversed.

constexpr std::array<std::uint32_t, 256> table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? kPolynomial : 0U);
    }
    table[byte] = crc;
  }
  return table;
}

/// TFRecord files contain this instead of a plain CRC, because they may themselves contain CRCs.
std::uint32_t masked(std::uint32_t crc) {
  constexpr std::uint32_t kMaskDelta = 0xa282ead8;
  return ((crc >> 15U) | (crc << 17U)) + kMaskDelta;
}

template <typename Number>
void append_number(std::string& bytes, Number number) {
  for (std::size_t k = 0; k < sizeof number; ++k) {
    bytes += static_cast<char>(number >> (8 * k) & 0xff);
  }
}

void add(proto::TensorboardEvent& event, const char* tag, double value) {
  proto::TensorboardSummary::Value& scalar = *event.mutable_summary()->add_value();
  scalar.set_tag(tag);
  scalar.set_simple_value(static_cast<float>(value));
}

/// Adds an accuracy from a report, in which -1 means that there is none.
void add_accuracy(proto::TensorboardEvent& event, const char* tag, double accuracy) {
  if (accuracy >= 0) {
    add(event, tag, accuracy);
  }
}

proto::TensorboardEvent event_of(std::uint64_t step, double time) {
  proto::TensorboardEvent event;
  event.set_wall_time(time);
  event.set_step(static_cast<std::int64_t>(step));
  return event;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = table();
  std::uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc = (crc >> 8U) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xffU];
  }
  return ~crc;
}

std::string tf_record(std::string_view data) {
  std::string record;
  append_number(record, static_cast<std::uint64_t>(data.size()));
  append_number(record, masked(crc32c(record)));
  record += data;
  append_number(record, masked(crc32c(data)));
  return record;
}

void TensorboardFile::write(const proto::TensorboardEvent& event) {
  file_->append(tf_record(event.SerializeAsString()));
}

/// Begins the file. TensorBoard reads a folder's files in the order of their names, which begin with the time.
void TensorboardFile::begin(double time) {
  file_.emplace(disk_,
                fmt::format("{}/events.out.tfevents.{:010d}.{}", setup_.folder, std::llround(time), setup_.name_end),
                GrowingFile::Unit::kRecord);
  proto::TensorboardEvent version = event_of(0, time);
  version.set_file_version("brain.Event:2");
  write(version);
  const bool resumes = setup_.resumed_step > 0;
  proto::TensorboardEvent session = event_of(resumes ? setup_.resumed_step + 1 : 0, time);
  session.mutable_session_log()->set_status(proto::TensorboardSession::START);
  write(session);
  last_.device = resumes ? std::nullopt : std::optional(0.0);
}

void TensorboardFile::take(const proto::ReportItem& item, double time) {
  if (item.has_shape()) {
    samples_per_step_ = item.shape().samples_per_step();
    return;
  }
  if (!item.has_step() && !item.has_evaluation()) {
    return;
  }
  if (!file_) {
    begin(time);
  }
  if (item.has_step()) {
    take_step(item.step(), time);
    last_ = {item.step().elapsed().wall_seconds(), item.step().device_seconds()};
  } else {
    take_evaluation(item.evaluation(), time);
    last_ = {item.evaluation().elapsed().wall_seconds(), item.evaluation().device_seconds()};
  }
}

void TensorboardFile::take_step(const proto::StepMetrics& step, double time) {
  proto::TensorboardEvent event = event_of(step.step(), time);
  add(event, "training/loss", step.loss());
  add_accuracy(event, "training/accuracy", step.accuracy());
  add(event, "training/learning_rate", step.learning_rate());
  if (const double seconds = step.elapsed().wall_seconds() - last_.wall; seconds > 0) {
    add(event, "speed/samples_per_second", static_cast<double>(samples_per_step_) / seconds);
  }
  if (last_.device) {
    add(event, "speed/device_seconds_per_step", step.device_seconds() - *last_.device);
  }
  write(event);
}

void TensorboardFile::take_evaluation(const proto::EvaluationMetrics& evaluation, double time) {
  proto::TensorboardEvent event = event_of(evaluation.step(), time);
  add(event, "evaluation/loss", evaluation.loss());
  add_accuracy(event, "evaluation/accuracy", evaluation.accuracy());
  write(event);
}

void TensorboardFile::hand_over() {
  if (file_ && !file_->flushed()) {
    file_->hand_over();
  }
}

}  // namespace poprun::launcher
