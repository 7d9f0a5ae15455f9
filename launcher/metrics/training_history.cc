#include "launcher/metrics/training_history.h"

namespace poprun::launcher {

void Curve::add(const Point& point) {
  while (!points_.empty() && points_.back().step >= point.step) {
    points_.pop_back();
  }
  const std::size_t size = points_.size();
  if (size >= 2 && points_[size - 1].step - points_[size - 2].step < stride_) {
    points_.back() = point;  // The last point was kept only as the latest.
    return;
  }
  points_.push_back(point);
  if (points_.size() > kPointsMax) {
    std::size_t kept = 0;
    for (std::size_t k = 0; k < points_.size(); k += 2) {
      points_[kept++] = points_[k];
    }
    points_.resize(kept);
    if (points_.back().step != point.step) {
      points_.push_back(point);
    }
    stride_ *= 2;
  }
}

void TrainingHistory::take(const proto::ReportItem& item) {
  if (item.has_shape()) {
    samples_per_step_ = item.shape().samples_per_step();
  } else if (item.has_step()) {
    const proto::StepMetrics& step = item.step();
    training_.add({.step = step.step(), .loss = step.loss(), .accuracy = step.accuracy()});
    ++steps_;
    samples_ += samples_per_step_;
    learning_rate_ = step.learning_rate();
  } else if (item.has_evaluation()) {
    const proto::EvaluationMetrics& evaluation = item.evaluation();
    evaluations_.add({.step = evaluation.step(), .loss = evaluation.loss(), .accuracy = evaluation.accuracy()});
  }
}

}  // namespace poprun::launcher
