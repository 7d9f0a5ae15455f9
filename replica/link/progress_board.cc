#include "replica/link/progress_board.h"

#include <algorithm>

#include "replica/base/error.h"

namespace poprun {

ProgressBoard::ProgressBoard(std::uint32_t first_replica, std::uint32_t replicas)
    : first_replica_(first_replica), replicas_(replicas), slots_(std::make_unique<Slot[]>(replicas)) {}

ProgressBoard::Slot& ProgressBoard::slot(ReplicaId replica) const {
  const std::uint32_t local = index_of(replica) - first_replica_;
  POPRUN_CHECK(local < replicas_);
  return slots_[local];
}

void ProgressBoard::write(ReplicaId replica, std::uint64_t step, std::string_view activity) {
  Slot& mine = slot(replica);
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(mine.mutex);
  mine.step = step;
  mine.activity.assign(activity);
  mine.since = now;
}

void ProgressBoard::waits_for_data(ReplicaId replica, bool waits) {
  Slot& mine = slot(replica);
  const std::lock_guard lock(mine.mutex);
  mine.waits_for_data_since = waits ? std::optional(Clock::now()) : std::nullopt;
  mine.data_news.reset();
}

void ProgressBoard::data_loads(ReplicaId replica, unsigned percent) {
  Slot& mine = slot(replica);
  const std::lock_guard lock(mine.mutex);
  if (mine.waits_for_data_since) {
    mine.data_news = Clock::now();
    mine.data_percent = percent;
  }
}

void ProgressBoard::write(ReplicaId replica, std::string_view activity) {
  Slot& mine = slot(replica);
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(mine.mutex);
  mine.activity.assign(activity);
  mine.since = now;
}

void ProgressBoard::operators(ReplicaId replica, std::uint64_t steps, double seconds) {
  Slot& mine = slot(replica);
  const std::lock_guard lock(mine.mutex);
  mine.times.set_steps(steps);
  mine.times.set_compute_seconds(seconds);
}

bool ProgressBoard::waits_for_data(std::chrono::seconds least) const {
  const Clock::time_point then = Clock::now() - least;
  return std::any_of(slots_.get(), slots_.get() + replicas_, [then](const Slot& slot) {
    const std::lock_guard lock(slot.mutex);
    return slot.waits_for_data_since && *slot.waits_for_data_since <= then;
  });
}

proto::Beat ProgressBoard::beat(std::uint32_t instance) const {
  proto::Beat beat;
  beat.set_instance(instance);
  for (std::uint32_t r = 0; r < replicas_; ++r) {
    *beat.add_replicas() = progress(ReplicaId{first_replica_ + r});
  }
  return beat;
}

proto::ReplicaProgress ProgressBoard::progress(ReplicaId replica) const {
  proto::ReplicaProgress progress;
  const Slot& its = slot(replica);
  const std::lock_guard lock(its.mutex);
  // Read the clock under the lock, or it may precede the times in the slot.
  const auto seconds_since = [now = Clock::now()](Clock::time_point then) {
    return std::chrono::duration<double>(now - then).count();
  };
  progress.set_replica(index_of(replica));
  progress.set_step(its.step);
  progress.set_activity(its.activity);
  progress.set_activity_seconds(seconds_since(its.since));
  *progress.mutable_times() = its.times;
  if (its.waits_for_data_since) {
    progress.set_data_wait_seconds(seconds_since(*its.waits_for_data_since));
    if (its.data_news) {
      progress.set_data_news_seconds(seconds_since(*its.data_news));
      progress.set_data_percent(its.data_percent);
    }
  }
  return progress;
}

void DrainGate::begin_parts(std::uint32_t local, std::uint64_t parts) {
  const std::lock_guard lock(mutex_);
  ends_.at(local) = parts_.at(local) + parts;
}

bool DrainGate::begin_part(std::uint32_t local) {
  std::unique_lock lock(mutex_);
  decided_.wait(lock, [this] { return !holds_ || last_part_.has_value(); });
  if (is_stopped(local)) {
    return false;
  }
  ++parts_.at(local);
  return true;
}

bool DrainGate::stops(std::uint32_t local) const {
  const std::lock_guard lock(mutex_);
  return is_stopped(local);
}

/// Returns whether the replica must not begin another part: it has begun the last one, or the job stops before the
/// exchange that follows its current parts.
bool DrainGate::is_stopped(std::uint32_t local) const {
  return last_part_ && (parts_.at(local) >= *last_part_ || ends_.at(local) > *last_part_);
}

void DrainGate::take(const proto::Directive& directive) {
  {
    const std::lock_guard lock(mutex_);
    holds_ = holds_ || directive.drain();
    if (directive.has_last_part()) {
      last_part_ = directive.last_part();
    }
  }
  decided_.notify_all();
}

bool DrainGate::holds() const {
  const std::lock_guard lock(mutex_);
  return holds_ && !last_part_;
}

void DrainGate::tell(proto::Beat& beat) const {
  const std::lock_guard lock(mutex_);
  beat.set_holds(holds_);
  for (std::size_t local = 0; local < parts_.size(); ++local) {
    beat.mutable_replicas(static_cast<int>(local))->set_parts(parts_[local]);
  }
}

}  // namespace poprun
