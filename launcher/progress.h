#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "proto/coordinator.pb.h"

namespace poprun::launcher {

/// How far training is and how fast, as one line of text. Speeds are wall figures over the last few
/// seconds.
class Progress {
 public:
  /// Before the first step; without it there is no total and no epoch count.
  void shape(const proto::JobShape& shape);
  void step(const proto::StepMetrics& metrics);

  [[nodiscard]] std::uint64_t steps() const { return last_.step(); }
  [[nodiscard]] std::uint64_t total_steps() const { return shape_.total_steps(); }

  /// `step 340/1404  epoch 2/6  loss 0.3124  accuracy 88.3 %  4,210 samples/s  ETA 0:53` in at most
  /// `width` columns: where they are few, the accuracy goes first. `starting` before the first
  /// step.
  [[nodiscard]] std::string line(std::size_t width) const;

 private:
  [[nodiscard]] std::string text(bool with_accuracy) const;

  /// Samples of all replicas a second of wall time; 0 while unknown.
  [[nodiscard]] double samples_per_second() const;

  struct Mark {
    std::uint64_t step;
    double wall_seconds;
  };

  proto::JobShape shape_;
  proto::StepMetrics last_;
  std::deque<Mark> marks_;  ///< Of the last kWindowSeconds.
};

/// `0:53`, `12:07`, `3:02:10`.
std::string clock_text(double seconds);

/// `1,234,567`.
std::string grouped(std::uint64_t number);

}  // namespace poprun::launcher
