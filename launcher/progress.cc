#include "launcher/progress.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace poprun::launcher {
namespace {

constexpr double kWindowSeconds = 5;
constexpr double kMarkSeconds = 0.05;  // Outputs come in by the thousand.

}  // namespace

void Progress::shape(const proto::JobShape& shape) {
  shape_ = shape;
}

void Progress::step(const proto::StepMetrics& metrics) {
  last_ = metrics;
  mark(metrics.step() * shape_.samples_per_step(), metrics.wall_seconds());
}

void Progress::outputs(std::uint64_t done, std::uint64_t total, double wall_seconds) {
  items_done_ = done;
  items_ = total;
  mark(done, wall_seconds);
}

void Progress::mark(std::uint64_t samples, double wall_seconds) {
  const std::size_t marks = marks_.size();
  if (marks > 1 && wall_seconds - marks_[marks - 2].wall_seconds < kMarkSeconds) {
    marks_.pop_back();
  }
  marks_.push_back({samples, wall_seconds});
  while (marks_.size() > 2 && wall_seconds - marks_.front().wall_seconds > kWindowSeconds) {
    marks_.pop_front();
  }
}

double Progress::samples_per_second() const {
  // The first step warms caches up and waits for the dataset: it says nothing of the speed.
  if (marks_.size() < 2) {
    return 0;
  }
  const Mark& first = marks_.front();
  const double seconds = marks_.back().wall_seconds - first.wall_seconds;
  const auto samples = static_cast<double>(marks_.back().samples - first.samples);
  return seconds > 0 ? samples / seconds : 0;
}

std::string Progress::line(std::size_t width) const {
  if (done() == 0) {
    return std::string("starting").substr(0, width);
  }
  if (items_ > 0) {
    return text_of_items().substr(0, width);
  }
  const std::string whole = text(/*with_accuracy=*/true);
  return whole.size() <= width ? whole : text(/*with_accuracy=*/false).substr(0, width);
}

std::string Progress::text_of_items() const {
  std::string line = fmt::format("{} of {} items", grouped(items_done_), grouped(items_));
  if (const double speed = samples_per_second(); speed > 0) {
    line += fmt::format("  {} items/s  ETA {}",
                        grouped(static_cast<std::uint64_t>(std::llround(speed))),
                        clock_text(static_cast<double>(items_ - items_done_) / speed));
  }
  return line;
}

std::string Progress::text(bool with_accuracy) const {
  const std::uint64_t total = shape_.total_steps();
  const std::uint64_t per_epoch = shape_.steps_per_epoch();
  std::string line = fmt::format("step {}", last_.step());
  if (total > 0) {
    line += fmt::format("/{}", total);
  }
  line += fmt::format("  epoch {}", last_.epoch());
  if (total > 0 && per_epoch > 0) {
    line += fmt::format("/{}", (total + per_epoch - 1) / per_epoch);
  }
  line += fmt::format("  loss {:.4f}", last_.loss());
  if (with_accuracy) {
    line += fmt::format("  accuracy {:.1f} %", 100 * last_.accuracy());
  }
  const double speed = samples_per_second();
  if (speed > 0) {
    line += fmt::format("  {} samples/s", grouped(static_cast<std::uint64_t>(std::lround(speed))));
    if (total >= last_.step()) {
      const auto left = static_cast<double>(total - last_.step());
      line += fmt::format("  ETA {}", clock_text(left * shape_.samples_per_step() / speed));
    }
  }
  return line;
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
