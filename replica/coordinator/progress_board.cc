#include "replica/coordinator/progress_board.h"

#include "replica/base/error.h"

namespace poprun {

ProgressBoard::ProgressBoard(std::uint32_t first_replica, std::uint32_t replicas)
    : first_replica_(first_replica),
      replicas_(replicas),
      slots_(std::make_unique<Slot[]>(replicas)) {}

void ProgressBoard::write(ReplicaId replica, std::uint64_t step, std::string_view activity) {
  const std::uint32_t local = index_of(replica) - first_replica_;
  POPRUN_CHECK(local < replicas_);
  Slot& slot = slots_[local];
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(slot.mutex);
  slot.step = step;
  slot.activity.assign(activity);
  slot.since = now;
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
  }
  return beat;
}

}  // namespace poprun
