#include "launcher/screen/display.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "launcher/screen/job_rows.h"
#include "launcher/screen/summary.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr double kWindowSeconds = 5;
constexpr double kMarkSeconds = 0.05;  // Minimum time between marks, because thousands of outputs arrive at once.

constexpr double kPlainProgressSeconds = 10;

/// Formats the time left while there is something to do: at least 0:01.
std::string time_left(double seconds) {
  return clock_text(std::max(1.0, seconds));
}

}  // namespace

double seconds_left(double elapsed, std::size_t done, std::size_t total) {
  return done == 0 ? 0 : elapsed / static_cast<double>(done) * static_cast<double>(total - done);
}

std::string waiting_text(const Waiting& waiting, double elapsed) {
  const double left = waiting.seconds - elapsed;
  return fmt::format("{}  {}{}", waiting.doing, clock_text(elapsed),
                     left > 0 ? fmt::format("  ETA {}", time_left(left)) : "");
}

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
  // The time before the first mark does not count, since the first step warms up caches and waits for the dataset.
  if (marks_.size() < 2) {
    return 0;
  }
  const Mark& first = marks_.front();
  const double seconds = marks_.back().wall_seconds - first.wall_seconds;
  const auto samples = static_cast<double>(marks_.back().samples - first.samples);
  return seconds > 0 ? samples / seconds : 0;
}

std::optional<double> Progress::eta_seconds() const {
  const double speed = samples_per_second();
  if (speed <= 0) {
    return std::nullopt;
  }
  if (items_ > 0) {
    return static_cast<double>(items_ - items_done_) / speed;
  }
  const std::uint64_t total = shape_.total_steps();
  if (total < last_.step()) {
    return std::nullopt;
  }
  return static_cast<double>(total - last_.step()) * static_cast<double>(shape_.samples_per_step()) / speed;
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
    line += fmt::format("  {} items/s", rate_number(speed));
    if (items_ > items_done_) {
      line += fmt::format("  ETA {}", time_left(*eta_seconds()));
    }
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
  std::string accuracy = last_.accuracy() < 0 ? "" : fmt::format("  accuracy {:.1f} %", 100 * last_.accuracy());
  std::string samples;
  std::string left;
  if (total > 0) {
    step += fmt::format("/{}", total);
  }
  if (total > 0 && per_epoch > 0) {
    epoch += fmt::format("/{}", (total + per_epoch - 1) / per_epoch);
  }
  if (speed > 0) {
    samples = "  " + rate_text(speed);
  }
  if (const std::optional<double> eta = eta_seconds(); eta && total > last_.step()) {
    left = fmt::format("  ETA {}", time_left(*eta));
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

void Display::take(const proto::ReportItem& item) {
  if (item.has_shape()) {
    show_shape(item.shape());
  } else if (item.has_step()) {
    progress_.step(item.step());
  } else if (item.has_evaluation()) {
    show_evaluation(item.evaluation());
  } else if (item.has_note()) {
    console_.say(fmt::format("note: {}", item.note().text()));
  } else if (item.has_check_plan()) {
    show_check_plan(item.check_plan());
  } else if (item.has_checked_run()) {
    if (!for_scripts_) {
      console_.out(check_row(item.checked_run()));
    }
    ++runs_checked_;
  }
}

void Display::show_check_plan(const proto::CheckPlan& plan) {
  runs_ = plan.runs();
  console_.say(fmt::format("checking {} on {}: {}, {} each", config_.model().name(),
                           counted(config_.topology().num_replicas(), "replica"), counted(plan.runs(), "run"),
                           counted(plan.steps(), "step")));
  for (const proto::Note& note : plan.notes()) {
    console_.say(fmt::format("note: {}", note.text()));
  }
  if (!for_scripts_) {
    console_.out(check_heading());
  }
}

void Display::show_shape(const proto::JobShape& shape) {
  progress_.shape(shape);
  const std::string work =
      config_.inference() ? fmt::format("inference, {} batches of {}", grouped(shape.total_steps()),
                                        counted(shape.samples_per_step(), "sample"))
                          : fmt::format("{} of {} ({} per epoch)", counted(shape.total_steps(), "step"),
                                        counted(shape.samples_per_step(), "sample"), grouped(shape.steps_per_epoch()));
  const char* where = config_.topology().ipus_per_replica() > 1 ? "on the fullest IPU" : "per IPU";
  console_.say(fmt::format("{} on {}: {} parameters, {}, {:.1f} of {:.1f} MiB {}", config_.model().name(),
                           counted(config_.topology().num_replicas(), "replica"), grouped(shape.parameter_count()),
                           work, to_mebibytes(shape.planned_peak_bytes()), to_mebibytes(shape.memory_capacity_bytes()),
                           where));
  for (const proto::Note& note : shape.notes()) {
    console_.say(fmt::format("note: {}", note.text()));
  }
}

void Display::show_evaluation(const proto::EvaluationMetrics& metrics) {
  progress_.evaluation(metrics);
  if (!config_.inference()) {
    const std::string accuracy =
        metrics.accuracy() < 0 ? "" : fmt::format("test accuracy {:.2f} %, ", 100 * metrics.accuracy());
    console_.say(fmt::format("epoch {}, step {}: {}test loss {:.4f}, {} items", metrics.epoch(), metrics.step(),
                             accuracy, metrics.loss(), grouped(metrics.items())));
  }
}

void Display::stopping(const std::string& doing, double now) {
  if (stopping_.empty()) {
    shown_at_ = now;
  }
  stopping_ = fmt::format("stopping; {}", doing);
}

std::string Display::doing(double now, std::size_t width) const {
  const double elapsed = now - began_.value_or(now);
  if (runs_ > 0) {
    const double left = seconds_left(elapsed, std::min(runs_checked_, runs_), runs_);
    return waiting_text(
        {.doing = fmt::format("{} of {} runs checked", runs_checked_, runs_), .seconds = elapsed + left}, elapsed);
  }
  if (progress_.done() > 0 || elapsed < 1) {
    return progress_.line(width);
  }
  return waiting_text({.doing = progress_.shape_known() ? "waiting for the first step" : "starting and compiling"},
                      elapsed);
}

void Display::refresh(double now) {
  began_ = began_.value_or(now);
  if (console_.has_live_line()) {
    const std::size_t width = console_.width() - 1;
    console_.live((stopping_.empty() ? doing(now, width) : stopping_).substr(0, width));
  } else if (!stopping_.empty()) {
    if (now - shown_at_ >= kPlainProgressSeconds) {
      shown_at_ = now;
      console_.say(stopping_, Keep::kIfRoom);
    }
  } else if (progress_.done() > shown_done_ && (shown_done_ == 0 || now - shown_at_ >= kPlainProgressSeconds)) {
    shown_at_ = now;
    shown_done_ = progress_.done();
    console_.say(progress_.line(std::string::npos), Keep::kIfRoom);
  }
}

void Display::end() {
  if (progress_.done() > shown_done_ && !console_.has_live_line()) {
    console_.say(progress_.line(std::string::npos));
  }
}

}  // namespace poprun::launcher
