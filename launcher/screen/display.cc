#include "launcher/screen/display.h"

#include <string>

#include <fmt/format.h>

#include "launcher/screen/check_table.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr double kPlainProgressSeconds = 10;

}  // namespace

void Display::take(const proto::ReportItem& item) {
  if (item.has_shape()) {
    show_shape(item.shape());
  } else if (item.has_step()) {
    progress_.step(item.step());
  } else if (item.has_evaluation()) {
    show_evaluation(item.evaluation());
  } else if (item.has_note()) {
    console_.say(fmt::format("note: {}", item.note()));
  } else if (item.has_check_plan()) {
    show_check_plan(item.check_plan());
  } else if (item.has_checked_run()) {
    console_.out(check_row(item.checked_run()));
    ++runs_checked_;
  }
}

void Display::show_check_plan(const proto::CheckPlan& plan) {
  runs_ = plan.runs();
  console_.say(fmt::format("checking {} on {}: {}, {} each", config_.model().name(),
                           counted(config_.topology().num_replicas(), "replica"),
                           counted(plan.runs(), "run"), counted(plan.steps(), "step")));
  for (const std::string& note : plan.notes()) {
    console_.say(fmt::format("note: {}", note));
  }
  console_.out(check_heading());
}

void Display::show_shape(const proto::JobShape& shape) {
  progress_.shape(shape);
  const std::string work =
      config_.inference()
          ? fmt::format("inference, {} batches of {}", grouped(shape.total_steps()),
                        counted(shape.samples_per_step(), "sample"))
          : fmt::format("{} of {} ({} per epoch)", counted(shape.total_steps(), "step"),
                        counted(shape.samples_per_step(), "sample"),
                        grouped(shape.steps_per_epoch()));
  const char* where = config_.topology().ipus_per_replica() > 1 ? "on the fullest IPU" : "per IPU";
  console_.say(
      fmt::format("{} on {}: {} parameters, {}, {:.1f} of {:.1f} MiB {}", config_.model().name(),
                  counted(config_.topology().num_replicas(), "replica"),
                  grouped(shape.parameter_count()), work, to_mebibytes(shape.planned_peak_bytes()),
                  to_mebibytes(shape.memory_capacity_bytes()), where));
  for (const std::string& note : shape.notes()) {
    console_.say(fmt::format("note: {}", note));
  }
}

void Display::show_evaluation(const proto::EvaluationMetrics& metrics) {
  progress_.evaluation(metrics);
  if (!config_.inference()) {
    const std::string accuracy =
        metrics.accuracy() < 0 ? ""
                               : fmt::format("test accuracy {:.2f} %, ", 100 * metrics.accuracy());
    console_.say(fmt::format("epoch {}, step {}: {}test loss {:.4f}, {} items", metrics.epoch(),
                             metrics.step(), accuracy, metrics.loss(), grouped(metrics.items())));
  }
}

void Display::stopping(const std::string& doing, double now) {
  if (stopping_.empty()) {
    shown_at_ = now;
  }
  stopping_ = fmt::format("stopping; {}", doing);
}

void Display::refresh(double now) {
  if (console_.has_live_line()) {
    const std::size_t width = console_.width() - 1;
    const std::string done = runs_ > 0 ? fmt::format("{} of {} runs checked", runs_checked_, runs_)
                                       : progress_.line(width);
    console_.live((stopping_.empty() ? done : stopping_).substr(0, width));
  } else if (!stopping_.empty()) {
    if (now - shown_at_ >= kPlainProgressSeconds) {
      shown_at_ = now;
      console_.say(stopping_, Keep::kIfRoom);
    }
  } else if (progress_.done() > shown_done_ &&
             (shown_done_ == 0 || now - shown_at_ >= kPlainProgressSeconds)) {
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
