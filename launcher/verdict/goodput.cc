#include "launcher/verdict/goodput.h"

#include <algorithm>
#include <utility>

namespace poprun::launcher {

/// Returns the seconds from `known_until_` to `then`, which becomes the new `known_until_`.
double Goodput::until(double then) {
  const double end = std::max(then, known_until_);
  return end - std::exchange(known_until_, end);
}

Goodput::Span Goodput::span_until(const proto::Elapsed& elapsed, double now) {
  Span span{.seconds = until(std::min(now, *began_ + elapsed.wall_seconds()))};
  span.saving = std::clamp(elapsed.saving_seconds() - last_.saving_seconds(), 0.0, span.seconds);
  span.data = std::clamp(elapsed.data_seconds() - last_.data_seconds(), 0.0, span.seconds - span.saving);
  last_ = elapsed;
  return span;
}

void Goodput::take(const proto::ReportItem& item, double now) {
  if (!counts_ || !(item.has_step() || item.has_evaluation())) {
    return;
  }
  const proto::Elapsed& elapsed = item.has_step() ? item.step().elapsed() : item.evaluation().elapsed();
  if (!began_) {
    parts_.set_start_seconds(parts_.start_seconds() + until(now - elapsed.wall_seconds()));
    began_ = known_until_;
  }
  const Span span = span_until(elapsed, now);
  parts_.set_saving_seconds(parts_.saving_seconds() + span.saving);
  parts_.set_data_seconds(parts_.data_seconds() + span.data);
  const double worked = span.seconds - span.saving - span.data;
  std::uint64_t& farthest = item.has_step() ? farthest_step_ : evaluated_step_;
  const std::uint64_t step = item.has_step() ? item.step().step() : item.evaluation().step();
  if (step <= farthest) {
    parts_.set_redone_seconds(parts_.redone_seconds() + worked);
    parts_.set_redone_steps(parts_.redone_steps() + (item.has_step() ? 1 : 0));
    return;
  }
  farthest = step;
  if (item.has_step()) {
    parts_.set_step_seconds(parts_.step_seconds() + worked);
  } else {
    parts_.set_evaluation_seconds(parts_.evaluation_seconds() + worked);
  }
}

void Goodput::failed(double now) {
  if (counts_ && !began_) {
    parts_.set_start_seconds(parts_.start_seconds() + until(now));
  }
  counts_ = false;
}

void Goodput::restarted(double now) {
  parts_.set_down_seconds(parts_.down_seconds() + until(now));
  parts_.set_attempts(parts_.attempts() + 1);
  began_.reset();
  last_.Clear();
  counts_ = true;
}

void Goodput::reported(double now) {
  if (std::exchange(counts_, false)) {
    const double rest = until(now);
    if (began_) {
      parts_.set_saving_seconds(parts_.saving_seconds() + rest);
    } else {  // A job that resumed after its last step has nothing to train.
      parts_.set_start_seconds(parts_.start_seconds() + rest);
    }
  }
}

proto::Goodput Goodput::parts() const {
  proto::Goodput parts = parts_;
  parts.set_attempts(parts_.attempts() + 1);
  parts.set_total_seconds(known_until_ - launched_at_);
  if (parts.total_seconds() > 0) {
    parts.set_ratio((parts.step_seconds() + parts.evaluation_seconds()) / parts.total_seconds());
  }
  return parts;
}

}  // namespace poprun::launcher
