#include "replica/coordinator/drain_gate.h"

namespace poprun {

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

/// Nobody reaches the exchange after a last part that the job does not reach.
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
