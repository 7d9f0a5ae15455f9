#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "launcher/screen/console.h"
#include "proto/coordinator.pb.h"
#include "proto/run_config.pb.h"

namespace poprun::launcher {

/// The activity that the launcher waits for, and its expected duration.
struct Waiting {
  std::string doing = {};  ///< "compiling"; empty: not shown.
  double seconds = 0;      ///< Expected duration of this wait and all that follow it; 0: unknown.
};

/// Estimates the seconds that the rest of `total` equal pieces of work will take, if `done` of them took `elapsed`
/// seconds. Returns 0 if none is done.
double seconds_left(double elapsed, std::size_t done, std::size_t total);

/// Returns the line of a wait that has lasted `elapsed` seconds: `compiling  0:12  ETA 1:05`.
std::string waiting_text(const Waiting& waiting, double elapsed);

/// The progress and speed of a job, as one line of text. Speeds are wall-clock figures over the last few seconds.
class Progress {
 public:
  /// Records the job's size. Call this before the first step; otherwise, neither the total nor the epochs are known.
  void shape(const proto::JobShape& shape);
  void step(const proto::StepMetrics& metrics);

  void evaluation(const proto::EvaluationMetrics& metrics) { evaluation_ = metrics; }

  /// In inference, records that outputs for `done` of `total` items have arrived at the time `wall_seconds`.
  void outputs(std::uint64_t done, std::uint64_t total, double wall_seconds);

  [[nodiscard]] std::uint64_t steps() const { return last_.step(); }
  /// Returns the number of steps completed or, in inference, of items.
  [[nodiscard]] std::uint64_t done() const { return items_ > 0 ? items_done_ : last_.step(); }
  [[nodiscard]] std::uint64_t total_steps() const { return shape_.total_steps(); }

  /// Returns the metrics of the last step. Before the first step, `step` is 0.
  [[nodiscard]] const proto::StepMetrics& last() const { return last_; }
  /// Returns the metrics of the last evaluation. Before the first one, `items` is 0.
  [[nodiscard]] const proto::EvaluationMetrics& last_evaluation() const { return evaluation_; }
  /// Returns whether the job has been compiled, so that its size is known.
  [[nodiscard]] bool shape_known() const { return shape_.samples_per_step() > 0; }
  /// Returns the samples of all replicas per second of wall time, or 0 while this is unknown.
  [[nodiscard]] double samples_per_second() const;

  /// Returns the seconds until the last step, at this speed, or nothing while this is unknown.
  [[nodiscard]] std::optional<double> eta_seconds() const;

  /// Returns `step 340/1404  epoch 2/6  loss 0.3124  accuracy 88.3 %  4,210 samples/s  ETA 0:53` in at most `width`
  /// columns. After the last step, there is no ETA. If space is short, leaves out accuracy, speed, loss and epoch, in
  /// this order. In inference, returns `1,234 of 10,000 items  4,210 items/s  ETA 0:02`. Before the first step or
  /// output, returns `starting`.
  [[nodiscard]] std::string line(std::size_t width) const;

 private:
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
  std::deque<Mark> marks_;   ///< Progress in the last kWindowSeconds.
};

/// Formats a duration: `0:53`, `12:07`, `3:02:10`.
std::string clock_text(double seconds);

/// Shows the size, evaluations and progress of a running job. Progress is shown in the live line of a terminal or, if
/// there is no terminal, in lines at intervals.
class Display {
 public:
  /// Both references must outlive this.
  /// With `for_scripts`, standard output gets nothing, because the job's answer is JSON.
  Display(Console& console, const proto::RunConfig& config, bool for_scripts = false)
      : console_(console), config_(config), for_scripts_(for_scripts) {}

  /// Shows an item of a report when it arrives. For outputs of inference, call `outputs` instead.
  void take(const proto::ReportItem& item);
  /// In inference, records that the outputs for `done` of `total` items have been written.
  void outputs(std::uint64_t done, std::uint64_t total, double now) { progress_.outputs(done, total, now); }

  /// Shows, instead of the progress, what the job is still doing after it was asked to stop.
  void stopping(const std::string& doing, double now);

  /// Updates the display. Call this often. `now` is monotonic_seconds().
  void refresh(double now);
  /// Ends the display. If the display has no live line, shows the final progress.
  void end();

  [[nodiscard]] const Progress& progress() const { return progress_; }

 private:
  void show_shape(const proto::JobShape& shape);
  void show_evaluation(const proto::EvaluationMetrics& metrics);
  void show_check_plan(const proto::CheckPlan& plan);

  /// Returns the text of the live line.
  [[nodiscard]] std::string doing(double now, std::size_t width) const;

  Console& console_;
  const proto::RunConfig& config_;
  bool for_scripts_;
  Progress progress_;
  std::optional<double> began_;   ///< Time of the first refresh.
  std::string stopping_;          ///< Activity of a job that was asked to stop.
  double shown_at_ = 0;           ///< Time at which a line was last shown.
  std::uint64_t shown_done_ = 0;  ///< Steps or items in the last line shown.
  std::uint32_t runs_ = 0;        ///< Number of runs in a check; 0 before its plan is known.
  std::uint32_t runs_checked_ = 0;
};

}  // namespace poprun::launcher
