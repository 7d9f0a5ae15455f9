#include "launcher/verdict/drain_point.h"

#include <algorithm>

namespace poprun::launcher {

void DrainPoint::beat(const proto::Beat& beat) {
  if (beat.instance() >= instances_.size() || !beat.holds()) {
    return;
  }
  Instance& instance = instances_[beat.instance()];
  instance.settled = true;
  for (const proto::ReplicaProgress& replica : beat.replicas()) {
    instance.parts = std::max(instance.parts, replica.parts());
  }
}

void DrainPoint::left(std::uint32_t instance) {
  if (instance < instances_.size()) {
    instances_[instance].settled = true;
  }
}

std::optional<std::uint64_t> DrainPoint::last_part() const {
  if (!std::ranges::all_of(instances_, &Instance::settled)) {
    return std::nullopt;
  }
  return std::ranges::max_element(instances_, {}, &Instance::parts)->parts;
}

}  // namespace poprun::launcher
