#include "launcher/verdict/job_state.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "launcher/verdict/same_numerics.h"

namespace poprun::launcher {
namespace {

bool is_there(const InstanceView& instance) {
  return instance.joined && !instance.left && !instance.lost;
}

}  // namespace

JobState::JobState(const Placement& placement, double now, std::string cpu_isa)
    : placement_(placement), instances_(placement.num_instances), cpu_isa_(std::move(cpu_isa)) {
  for (std::uint32_t i = 0; i < placement.num_instances; ++i) {
    instances_[i].host = placement.host_of(i);
    instances_[i].last_sign = now;
    instances_[i].replicas.resize(placement.replicas_per_instance());
  }
}

Status JobState::join(const proto::JoinRequest& request, double now) {
  if (request.instance() >= instances_.size()) {
    return fail(ErrorCode::kUnreachable, fmt::format("instance {} does not exist, the job has {}",
                                                     request.instance(), instances_.size()));
  }
  if (request.version() != POPRUN_VERSION) {
    return fail(ErrorCode::kUnreachable,
                fmt::format("poprun-emu-replica on host {} is version {}, poprun-emu is {}; "
                            "install the same on all hosts",
                            request.host(), request.version(), POPRUN_VERSION));
  }
  InstanceView& instance = instances_[request.instance()];
  if (instance.joined) {
    return fail(ErrorCode::kUnreachable,
                fmt::format("instance {} is there already, on host {} with pid {}",
                            request.instance(), instance.host, instance.pid));
  }
  if (!first_to_join_) {
    first_to_join_ = request;
  }
  POPRUN_TRY(check_same_numerics(*first_to_join_, request, cpu_isa_));
  instance.joined = true;
  instance.host = request.host();
  instance.pid = request.pid();
  instance.last_sign = now;
  return {};
}

void JobState::beat(const proto::Beat& beat, double now) {
  // Later ones would hide what was done when the trouble began: to end processes mpirun also wakes
  // the one that was stopped.
  if (beat.instance() >= instances_.size() || any_trouble()) {
    return;
  }
  InstanceView& instance = instances_[beat.instance()];
  instance.last_sign = now;
  const std::uint32_t first = beat.instance() * placement_.replicas_per_instance();
  for (const proto::ReplicaProgress& progress : beat.replicas()) {
    if (progress.replica() >= first && progress.replica() - first < instance.replicas.size()) {
      instance.replicas[progress.replica() - first] = {progress.step(), progress.activity(),
                                                       now - progress.activity_seconds()};
    }
  }
}

void JobState::leave(std::uint32_t instance, bool orderly) {
  if (instance >= instances_.size()) {
    return;
  }
  (orderly ? instances_[instance].left : instances_[instance].lost) = true;
  const bool said_why =
      std::ranges::find(failures_, instance, &proto::Failure::instance) != failures_.end();
  if (!orderly && !first_lost_ && !said_why) {
    first_lost_ = instance;
  }
}

void JobState::forgive_silence(double now) {
  for (InstanceView& instance : instances_) {
    instance.last_sign = now;
  }
}

bool JobState::all_joined() const {
  return std::ranges::all_of(instances_, &InstanceView::joined);
}

bool JobState::all_left() const {
  return std::ranges::all_of(instances_, &InstanceView::left);
}

std::uint64_t JobState::step() const {
  std::uint64_t step = 0;
  for (const InstanceView& instance : instances_) {
    for (const ReplicaView& replica : instance.replicas) {
      step = std::max(step, replica.step);
    }
  }
  return step;
}

std::optional<double> JobState::oldest_heartbeat() const {
  std::optional<double> oldest;
  for (const InstanceView& instance : instances_) {
    if (is_there(instance)) {
      oldest = std::min(oldest.value_or(instance.last_sign), instance.last_sign);
    }
  }
  return oldest;
}

std::vector<std::uint32_t> JobState::silent(double now, double timeout) const {
  std::vector<std::uint32_t> silent;
  for (std::uint32_t i = 0; i < instances_.size(); ++i) {
    const InstanceView& instance = instances_[i];
    if (is_there(instance) && now - instance.last_sign > timeout) {
      silent.push_back(i);
    }
  }
  return silent;
}

}  // namespace poprun::launcher
