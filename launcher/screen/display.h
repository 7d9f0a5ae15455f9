#pragma once

#include <cstdint>
#include <string>

#include "launcher/screen/console.h"
#include "launcher/screen/progress.h"
#include "proto/coordinator.pb.h"
#include "proto/run_config.pb.h"

namespace poprun::launcher {

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
