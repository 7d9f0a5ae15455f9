#include "launcher/screen/progress.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "replica/base/text.h"

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
  return text_of_steps(width).substr(0, width);
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

std::string Progress::text_of_steps(std::size_t width) const {
  const std::uint64_t total = shape_.total_steps();
  const std::uint64_t per_epoch = shape_.steps_per_epoch();
  const double speed = samples_per_second();
  std::string step = fmt::format("step {}", last_.step());
  std::string epoch = fmt::format("  epoch {}", last_.epoch());
  std::string loss = fmt::format("  loss {:.4f}", last_.loss());
  std::string accuracy =
      last_.accuracy() < 0 ? "" : fmt::format("  accuracy {:.1f} %", 100 * last_.accuracy());
  std::string samples;
  std::string left;
  if (total > 0) {
    step += fmt::format("/{}", total);
  }
  if (total > 0 && per_epoch > 0) {
    epoch += fmt::format("/{}", (total + per_epoch - 1) / per_epoch);
  }
  if (speed > 0) {
    samples =
        fmt::format("  {} samples/s", grouped(static_cast<std::uint64_t>(std::lround(speed))));
  }
  if (speed > 0 && total >= last_.step()) {
    const auto steps = static_cast<double>(total - last_.step());
    left = fmt::format("  ETA {}", clock_text(steps * shape_.samples_per_step() / speed));
  }
  const auto line = [&] { return step + epoch + loss + accuracy + samples + left; };
  for (std::string* least : {&accuracy, &samples, &loss, &epoch}) {
    if (line().size() > width) {
      least->clear();
    }
  }
  return line();
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::llround(std::max(0.0, seconds)));
  if (whole >= 3600) {
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace poprun::launcher
