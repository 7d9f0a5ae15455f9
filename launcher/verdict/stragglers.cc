#include "launcher/verdict/stragglers.h"

#include <algorithm>
#include <utility>

namespace poprun::launcher {
namespace {

/// Requires: not empty.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

void Stragglers::beat(const proto::Beat& beat) {
  for (const proto::ReplicaProgress& progress : beat.replicas()) {
    if (progress.replica() < now_.size()) {
      now_[progress.replica()] = {progress.times().steps(), progress.times().compute_seconds()};
    }
  }
}

std::optional<Straggler> Stragglers::found() {
  if (now_.size() < 2) {
    return std::nullopt;
  }
  std::vector<double> seconds;
  for (std::size_t r = 0; r < now_.size(); ++r) {
    if (now_[r].steps < mark_[r].steps + kStretchSteps) {
      return std::nullopt;
    }
    seconds.push_back(now_[r].seconds - mark_[r].seconds);
  }
  if (median(seconds) < kStretchSeconds) {
    return std::nullopt;
  }
  slowest_ = slowest_of_stretch();
  mark_ = now_;
  if (told_) {
    return std::nullopt;
  }
  const bool beyond = slowest_->seconds_per_step >= kFactor * slowest_->usual_seconds;
  const bool again = beyond && suspect_ && slowest_->replica == suspect_->replica;
  stretches_ = again ? stretches_ + 1 : 1;
  const std::uint64_t before = again ? suspect_->steps : 0;
  suspect_ = beyond ? slowest_ : std::nullopt;
  if (!suspect_) {
    return std::nullopt;
  }
  suspect_->steps += before;
  told_ = stretches_ == kStretches;
  return told_ ? suspect_ : std::nullopt;
}

Straggler Stragglers::slowest_of_stretch() const {
  std::vector<double> rates;
  for (std::size_t r = 0; r < now_.size(); ++r) {
    rates.push_back((now_[r].seconds - mark_[r].seconds) /
                    static_cast<double>(now_[r].steps - mark_[r].steps));
  }
  const auto slowest = std::ranges::max_element(rates);
  std::vector<double> others = rates;
  others.erase(others.begin() + (slowest - rates.begin()));
  const double usual = median(others);
  const auto replica = static_cast<std::size_t>(slowest - rates.begin());
  return Straggler{.replica = static_cast<std::uint32_t>(replica),
                   .others = static_cast<std::uint32_t>(std::ranges::count_if(
                       others, [&](double rate) { return rate >= kFactor * usual; })),
                   .seconds_per_step = *slowest,
                   .usual_seconds = usual,
                   .steps = now_[replica].steps - mark_[replica].steps};
}

}  // namespace poprun::launcher
