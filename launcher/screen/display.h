#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "launcher/screen/console.h"
#include "proto/coordinator.pb.h"
#include "proto/run_config.pb.h"

namespace poprun::launcher {

/// How far training or inference is and how fast, as one line of text. Speeds are wall figures over
/// the last few seconds.
class Progress {
 public:
  /// Before the first step; without it there is no total and no epoch count.
  void shape(const proto::JobShape& shape);
  void step(const proto::StepMetrics& metrics);

  void evaluation(const proto::EvaluationMetrics& metrics) { evaluation_ = metrics; }

  /// In inference: outputs of `done` of `total` items are here, `wall_seconds` after some moment.
  void outputs(std::uint64_t done, std::uint64_t total, double wall_seconds);

  [[nodiscard]] std::uint64_t steps() const { return last_.step(); }
  /// Steps, or items in inference.
  [[nodiscard]] std::uint64_t done() const { return items_ > 0 ? items_done_ : last_.step(); }
  [[nodiscard]] std::uint64_t total_steps() const { return shape_.total_steps(); }

  /// Without a step before the first one.
  [[nodiscard]] const proto::StepMetrics& last() const { return last_; }
  /// The last one; without items before it.
  [[nodiscard]] const proto::EvaluationMetrics& last_evaluation() const { return evaluation_; }
  /// The job's size is known: it is compiled.
  [[nodiscard]] bool shape_known() const { return shape_.samples_per_step() > 0; }
  /// Samples of all replicas a second of wall time; 0 while unknown.
  [[nodiscard]] double samples_per_second() const;

  /// `step 340/1404  epoch 2/6  loss 0.3124  accuracy 88.3 %  4,210 samples/s  ETA 0:53` in at most
  /// `width` columns: where they are few, accuracy, speed, loss and epoch go. In inference `1,234
  /// of 10,000 items  4,210 items/s  ETA 0:02`. `starting` before the first step or output.
  [[nodiscard]] std::string line(std::size_t width) const;

 private:
  /// Without what matters least where `width` is small.
  [[nodiscard]] std::string text_of_steps(std::size_t width) const;
  [[nodiscard]] std::string text_of_items() const;
  void mark(std::uint64_t samples, double wall_seconds);

  struct Mark {
    std::uint64_t samples;
    double wall_seconds;
  };

  proto::JobShape shape_;
  proto::StepMetrics last_;
  proto::EvaluationMetrics evaluation_;
  std::uint64_t items_done_ = 0;
  std::uint64_t items_ = 0;  ///< 0 in training.
  std::deque<Mark> marks_;   ///< Of the last kWindowSeconds.
};

/// `0:53`, `12:07`, `3:02:10`.
std::string clock_text(double seconds);

/// What a job shows of itself while it runs: its size, its evaluations, and how far it is, on a
/// terminal in the live line, elsewhere as a line now and then.
class Display {
 public:
  /// Both must outlive this.
  Display(Console& console, const proto::RunConfig& config) : console_(console), config_(config) {}

  /// A report's item as it comes; `outputs` is for those.
  void take(const proto::ReportItem& item);
  /// In inference: outputs of `done` of `total` items are written.
  void outputs(std::uint64_t done, std::uint64_t total, double now) {
    progress_.outputs(done, total, now);
  }

  /// The job was asked to stop, and is doing this now: shown in the place of its progress.
  void stopping(const std::string& doing, double now);

  /// To be called often. `now` is monotonic_seconds().
  void refresh(double now);
  /// The job is done: where no live line says so, where it really ended.
  void end();

  [[nodiscard]] const Progress& progress() const { return progress_; }

 private:
  void show_shape(const proto::JobShape& shape);
  void show_evaluation(const proto::EvaluationMetrics& metrics);
  void show_check_plan(const proto::CheckPlan& plan);

  Console& console_;
  const proto::RunConfig& config_;
  Progress progress_;
  std::string stopping_;          ///< What a job that was asked to stop is doing.
  double shown_at_ = 0;           ///< When a line was last shown.
  std::uint64_t shown_done_ = 0;  ///< Steps or items it told of.
  std::uint32_t runs_ = 0;        ///< In a check; 0 before its plan is known.
  std::uint32_t runs_checked_ = 0;
};

}  // namespace poprun::launcher
