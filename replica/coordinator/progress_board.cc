#include "replica/coordinator/progress_board.h"

#include "replica/base/error.h"

namespace poprun {

ProgressBoard::ProgressBoard(std::uint32_t first_replica, std::uint32_t replicas)
    : first_replica_(first_replica),
      replicas_(replicas),
      slots_(std::make_unique<Slot[]>(replicas)) {}

ProgressBoard::Slot& ProgressBoard::slot_of(ReplicaId replica) {
  const std::uint32_t local = index_of(replica) - first_replica_;
  POPRUN_CHECK(local < replicas_);
  return slots_[local];
}

void ProgressBoard::write(ReplicaId replica, std::uint64_t step, std::string_view activity) {
  Slot& slot = slot_of(replica);
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(slot.mutex);
  slot.step = step;
  slot.activity.assign(activity);
  slot.since = now;
}

void ProgressBoard::write(ReplicaId replica, std::string_view activity) {
  Slot& slot = slot_of(replica);
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(slot.mutex);
  slot.activity.assign(activity);
  slot.since = now;
}

void ProgressBoard::operators(ReplicaId replica, std::uint64_t steps, double seconds) {
  Slot& slot = slot_of(replica);
  const std::lock_guard lock(slot.mutex);
  slot.times.set_steps(steps);
  slot.times.set_compute_seconds(seconds);
}

proto::Beat ProgressBoard::beat(std::uint32_t instance) const {
  proto::Beat beat;
  beat.set_instance(instance);
  for (std::uint32_t r = 0; r < replicas_; ++r) {
    proto::ReplicaProgress& progress = *beat.add_replicas();
    const Slot& slot = slots_[r];
    const std::lock_guard lock(slot.mutex);
    progress.set_replica(first_replica_ + r);
    progress.set_step(slot.step);
    progress.set_activity(slot.activity);
    progress.set_activity_seconds(std::chrono::duration<double>(Clock::now() - slot.since).count());
    *progress.mutable_times() = slot.times;
  }
  return beat;
}

}  // namespace poprun
