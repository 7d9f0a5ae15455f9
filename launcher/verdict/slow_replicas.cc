#include "launcher/verdict/slow_replicas.h"

#include <algorithm>

#include <fmt/format.h>

#include "launcher/verdict/replica_words.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr double kExcuseSeconds = 1;  // A shorter wait does not excuse a late replica.
constexpr double kGiveUpSeconds = 5;  // Time for a replica to report that it gives up.
constexpr double kTellSeconds = 5;
constexpr double kRepeatSeconds = 60;

/// Returns whether the replica's wait ended without data.
bool gave_up(const JobState& state, std::uint32_t replica) {
  const std::uint32_t instance = state.placement().instance_of(replica);
  const InstanceView& view = state.instances()[instance];
  return view.left || view.lost ||
         std::ranges::find(state.failures(), instance, &proto::Failure::instance) != state.failures().end();
}

/// Returns the median (of two middle values, the greater). Requires: `values` is not empty.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

bool DataWaits::excuse(const JobState& state) const {
  const double wait = state.longest_data_wait();
  return wait >= kExcuseSeconds && state.longest_data_silence() <= limit_seconds_ + kGiveUpSeconds;
}

std::optional<std::string> DataWaits::news(const JobState& state) {
  const double wait = state.longest_data_wait();
  if (told_seconds_ > 0 && wait < kExcuseSeconds) {
    const double waited = std::exchange(told_seconds_, 0);
    if (std::ranges::any_of(waiting_, [&](std::uint32_t r) { return gave_up(state, r); })) {
      return std::nullopt;
    }
    return fmt::format("note: the data server {} has recovered; it kept replicas waiting for {:.0f} s", address_,
                       waited);
  }
  waiting_ = state.waiting_for_data(kExcuseSeconds);
  if (told_seconds_ > 0) {
    const bool is_due = wait >= last_note_ + kRepeatSeconds;
    told_seconds_ = wait;
    if (!is_due) {
      return std::nullopt;
    }
  } else if (wait < kTellSeconds) {
    return std::nullopt;
  }
  last_note_ = told_seconds_ = wait;
  const std::optional<std::uint32_t> percent = state.data_percent();
  return fmt::format("note: replica{} {} {} waiting for the data server {} for {:.0f} s; {}",
                     waiting_.size() == 1 ? "" : "s", number_ranges(waiting_),
                     waiting_.size() == 1 ? "has been" : "have been", address_, wait,
                     percent ? fmt::format("it is reading the dataset, {} % done", *percent)
                             : fmt::format("replicas give up after {:g} s (--hostio-timeout)", limit_seconds_));
}

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
  rates_ = rates();
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

std::optional<std::string> Stragglers::news(const JobState& state) {
  const std::optional<Straggler> found = this->found();
  if (!found) {
    return std::nullopt;
  }
  const std::string others = found->others > 0 ? fmt::format(", as are {}", counted(found->others, "other")) : "";
  return fmt::format(
      "note: replica {} (host {}) is {:.1f} times as slow as the median of the others{}: {} against {} in "
      "operators per step, over {} steps; all replicas wait for it at each exchange",
      found->replica, state.instances()[state.placement().instance_of(found->replica)].host,
      found->seconds_per_step / found->usual_seconds, others, duration_text(found->seconds_per_step),
      duration_text(found->usual_seconds), found->steps);
}

std::vector<double> Stragglers::rates() const {
  std::vector<double> all;
  for (std::size_t r = 0; r < now_.size(); ++r) {
    const std::uint64_t steps = now_[r].steps - mark_[r].steps;
    all.push_back(steps == 0 ? 0 : (now_[r].seconds - mark_[r].seconds) / static_cast<double>(steps));
  }
  return all;
}

Straggler Stragglers::slowest_of_stretch() const {
  const std::vector<double> all = rates();
  const auto slowest = std::ranges::max_element(all);
  std::vector<double> others = all;
  others.erase(others.begin() + (slowest - all.begin()));
  const double usual = median(others);
  const auto replica = static_cast<std::size_t>(slowest - all.begin());
  return Straggler{.replica = static_cast<std::uint32_t>(replica),
                   .others = static_cast<std::uint32_t>(
                       std::ranges::count_if(others, [&](double rate) { return rate >= kFactor * usual; })),
                   .seconds_per_step = *slowest,
                   .usual_seconds = usual,
                   .steps = now_[replica].steps - mark_[replica].steps};
}

}  // namespace poprun::launcher
