#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/coordinator.pb.h"

namespace poprun::launcher {

/// Loss and accuracy by step, in at most kPointsMax points, however many steps are added. If there are more steps, the
/// curve keeps equally distant ones, and the latest.
class Curve {
 public:
  static constexpr std::size_t kPointsMax = 400;

  struct Point {
    std::uint64_t step = 0;
    double loss = 0;
    double accuracy = -1;  ///< 0 to 1; -1 if the loss has no accuracy.
  };

  /// Adds a point. If the curve already contains this step or later ones, because a restarted job executes them again,
  /// removes those first.
  void add(const Point& point);

  [[nodiscard]] const std::vector<Point>& points() const { return points_; }

 private:
  std::vector<Point> points_;
  std::uint64_t stride_ = 1;  ///< Least distance between points, except for the latest point.
};

/// The progress of a training job so far, over all attempts of one launcher. If the job resumed from the checkpoint of
/// an earlier launcher, the history begins there.
class TrainingHistory {
 public:
  void take(const proto::ReportItem& item);

  [[nodiscard]] const Curve& training() const { return training_; }
  [[nodiscard]] const Curve& evaluations() const { return evaluations_; }
  /// Returns the number of steps, or of samples, executed so far, including those executed again after a restart.
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] std::uint64_t samples() const { return samples_; }
  /// Returns the learning rate of the last step, or nothing before the first one.
  [[nodiscard]] std::optional<double> learning_rate() const { return learning_rate_; }

 private:
  Curve training_;
  Curve evaluations_;
  std::uint64_t samples_per_step_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t samples_ = 0;
  std::optional<double> learning_rate_;
};

}  // namespace poprun::launcher
