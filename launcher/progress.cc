#include "launcher/progress.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace poprun::launcher {
namespace {

constexpr double kWindowSeconds = 5;

}  // namespace

void Progress::shape(const proto::JobShape& shape) {
  shape_ = shape;
}

void Progress::step(const proto::StepMetrics& metrics) {
  last_ = metrics;
  marks_.push_back({metrics.step(), metrics.wall_seconds()});
  while (marks_.size() > 2 &&
         metrics.wall_seconds() - marks_.front().wall_seconds > kWindowSeconds) {
    marks_.pop_front();
  }
}

double Progress::samples_per_second() const {
  if (marks_.empty()) {
    return 0;
  }
  // A step's time ends with it, so one mark counts from the beginning of training.
  const Mark first = marks_.size() > 1 ? marks_.front() : Mark{0, 0};
  const double seconds = marks_.back().wall_seconds - first.wall_seconds;
  const auto steps = static_cast<double>(marks_.back().step - first.step);
  return seconds > 0 ? steps * shape_.samples_per_step() / seconds : 0;
}

std::string Progress::line(std::size_t width) const {
  if (last_.step() == 0) {
    return std::string("starting").substr(0, width);
  }
  const bool by_epochs = shape_.steps_per_epoch() > 0 && shape_.total_steps() > 0;
  std::string text = fmt::format("step {}", last_.step());
  if (shape_.total_steps() > 0) {
    text += fmt::format("/{}", shape_.total_steps());
  }
  text += fmt::format("  epoch {}", last_.epoch());
  if (by_epochs) {
    text += fmt::format(
        "/{}", (shape_.total_steps() + shape_.steps_per_epoch() - 1) / shape_.steps_per_epoch());
  }
  text += fmt::format("  loss {:.4f}  accuracy {:.1f} %", last_.loss(), 100 * last_.accuracy());
  const double speed = samples_per_second();
  if (speed > 0) {
    text += fmt::format("  {} samples/s", grouped(static_cast<std::uint64_t>(std::lround(speed))));
    if (shape_.total_steps() >= last_.step()) {
      const auto left = static_cast<double>(shape_.total_steps() - last_.step());
      text += fmt::format("  ETA {}", clock_text(left * shape_.samples_per_step() / speed));
    }
  }
  return text.substr(0, width);
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::llround(std::max(0.0, seconds)));
  if (whole >= 3600) {
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t place = text.size(); place > 3; place -= 3) {
    text.insert(place - 3, ",");
  }
  return text;
}

}  // namespace poprun::launcher
