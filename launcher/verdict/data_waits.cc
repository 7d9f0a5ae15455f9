#include "launcher/verdict/data_waits.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "launcher/verdict/replica_words.h"

namespace poprun::launcher {
namespace {

constexpr double kExcuseSeconds = 1;  // Less is no reason to be late.
constexpr double kGiveUpSeconds = 5;  // For a replica to tell that it gives up.
constexpr double kTellSeconds = 5;
constexpr double kRepeatSeconds = 60;

/// Its wait ended, but not with data.
bool gave_up(const JobState& state, std::uint32_t replica) {
  const std::uint32_t instance = state.placement().instance_of(replica);
  const InstanceView& view = state.instances()[instance];
  return view.left || view.lost ||
         std::ranges::find(state.failures(), instance, &proto::Failure::instance) !=
             state.failures().end();
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
    return fmt::format(
        "note: the data server {} answers again; it kept replicas waiting for {:.0f} s", address_,
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
  return fmt::format(
      "note: replica{} {} {} waiting for the data server {} for {:.0f} s; {}",
      waiting_.size() == 1 ? "" : "s", number_ranges(waiting_),
      waiting_.size() == 1 ? "has been" : "have been", address_, wait,
      percent ? fmt::format("it reads the dataset, {} % done", *percent)
              : fmt::format("giving up after {:g} s (--hostio-timeout)", limit_seconds_));
}

}  // namespace poprun::launcher
