#include "launcher/verdict/job_state.h"

#include <algorithm>

#include <fmt/format.h>

#include "launcher/verdict/same_numerics.h"
#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

/// Longest silence after which a heartbeat still counts when there is trouble. An instance that was silent for longer
/// had been suspended: when mpirun ends processes, it also wakes suspended ones.
constexpr double kFreshSeconds = 2;

bool is_there(const InstanceView& instance) {
  return instance.joined && !instance.left && !instance.lost;
}

ReplicaView view_of(const proto::ReplicaProgress& progress, double now) {
  return {
      .step = progress.step(),
      .activity = progress.activity(),
      .since = now - progress.activity_seconds(),
      .data_wait = progress.data_wait_seconds(),
      .data_silence = progress.has_data_news_seconds() ? progress.data_news_seconds() : progress.data_wait_seconds(),
      .data_percent = progress.has_data_news_seconds() ? std::optional(progress.data_percent()) : std::nullopt};
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
    return fail(ErrorCode::kUnreachable, fmt::format("instance {} does not exist; the job has {}", request.instance(),
                                                     counted(instances_.size(), "instance")));
  }
  if (request.version() != POPRUN_VERSION) {
    return fail(ErrorCode::kUnreachable,
                fmt::format("poprun-emu-replica on host {} is version {}, but poprun-emu is version {}; "
                            "install the same version on all hosts",
                            request.host(), request.version(), POPRUN_VERSION));
  }
  InstanceView& instance = instances_[request.instance()];
  if (instance.joined) {
    return fail(ErrorCode::kUnreachable, fmt::format("instance {} has already joined, on host {} with pid {}",
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
  if (beat.instance() >= instances_.size()) {
    return;
  }
  InstanceView& instance = instances_[beat.instance()];
  losses_.take(instance.host, beat, now);
  if (any_trouble() && now - instance.last_sign > kFreshSeconds) {
    return;  // This heartbeat would hide that the instance was silent.
  }
  instance.last_sign = now;
  const std::uint32_t first = beat.instance() * placement_.replicas_per_instance();
  for (const proto::ReplicaProgress& progress : beat.replicas()) {
    if (progress.replica() >= first && progress.replica() - first < instance.replicas.size()) {
      ReplicaView& view = instance.replicas[progress.replica() - first];
      if (!view.is_last) {
        view = view_of(progress, now);
      }
    }
  }
}

void JobState::failure(const proto::Failure& failure, double now) {
  failures_.push_back(failure);
  const std::uint32_t local = placement_.replicas_per_instance();
  if (failure.has_progress() && failure.replica() < placement_.num_replicas) {
    ReplicaView& view = instances_[failure.replica() / local].replicas[failure.replica() % local];
    view = view_of(failure.progress(), now);
    view.is_last = true;
  }
}

void JobState::leave(std::uint32_t instance, bool orderly) {
  if (instance >= instances_.size()) {
    return;
  }
  (orderly ? instances_[instance].left : instances_[instance].lost) = true;
  const bool said_why = std::ranges::find(failures_, instance, &proto::Failure::instance) != failures_.end();
  if (!orderly && !first_lost_ && !said_why) {
    first_lost_ = instance;
  }
}

void JobState::end_joining() {
  for (InstanceView& instance : instances_) {
    instance.overdue = !instance.joined;
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

std::vector<std::uint32_t> JobState::waiting_for_data(double least) const {
  std::vector<std::uint32_t> waiting;
  for (std::uint32_t r = 0; r < placement_.num_replicas; ++r) {
    const InstanceView& instance = instances_[placement_.instance_of(r)];
    const double wait = instance.replicas[r % placement_.replicas_per_instance()].data_wait;
    if (is_there(instance) && wait > 0 && wait >= least) {
      waiting.push_back(r);
    }
  }
  return waiting;
}

double JobState::longest_data_wait() const {
  return longest_of(&ReplicaView::data_wait);
}

double JobState::longest_data_silence() const {
  return longest_of(&ReplicaView::data_silence);
}

double JobState::longest_of(double ReplicaView::*seconds) const {
  double longest = 0;
  for (const InstanceView& instance : instances_) {
    for (const ReplicaView& replica : instance.replicas) {
      longest = std::max(longest, is_there(instance) ? replica.*seconds : 0);
    }
  }
  return longest;
}

std::optional<std::uint32_t> JobState::data_percent() const {
  std::optional<std::uint32_t> least;
  for (const InstanceView& instance : instances_) {
    for (const ReplicaView& replica : instance.replicas) {
      if (is_there(instance) && replica.data_percent) {
        least = std::min(least.value_or(*replica.data_percent), *replica.data_percent);
      }
    }
  }
  return least;
}

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

std::optional<std::uint64_t> DrainPoint::last_part() {
  if (told_ || !std::ranges::all_of(instances_, &Instance::settled)) {
    return std::nullopt;
  }
  told_ = true;
  return std::ranges::max_element(instances_, {}, &Instance::parts)->parts;
}

}  // namespace poprun::launcher
