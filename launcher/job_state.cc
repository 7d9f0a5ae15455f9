#include "launcher/job_state.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace poprun::launcher {
namespace {

constexpr int kInfrastructure = static_cast<int>(ErrorCode::kInfrastructure);

std::string signal_text(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number)
                         : fmt::format("signal {} (SIG{})", number, name);
}

/// Codes that say the request or the data is wrong: the same on every replica, so who said it first
/// is of no interest.
bool blames_the_request(std::uint32_t code) {
  return code == static_cast<std::uint32_t>(ErrorCode::kUsage) ||
         code == static_cast<std::uint32_t>(ErrorCode::kData) ||
         code == static_cast<std::uint32_t>(ErrorCode::kOutOfMemory);
}

}  // namespace

JobState::JobState(const Placement& placement, std::string log_folder, double now)
    : placement_(placement),
      log_folder_(std::move(log_folder)),
      instances_(placement.num_instances) {
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
  if (!orderly && !first_lost_) {
    first_lost_ = instance;
  }
}

void JobState::failure(const proto::Failure& failure) {
  failures_.push_back(failure);
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

std::optional<std::uint32_t> JobState::silent(double now, double timeout) const {
  std::optional<std::uint32_t> longest;
  for (std::uint32_t i = 0; i < instances_.size(); ++i) {
    const InstanceView& instance = instances_[i];
    const bool watched = instance.joined && !instance.left && !instance.lost;
    if (watched && now - instance.last_sign > timeout &&
        (!longest || instance.last_sign < instances_[*longest].last_sign)) {
      longest = i;
    }
  }
  return longest;
}

std::string JobState::describe(std::uint32_t instance) const {
  const std::uint32_t local = placement_.replicas_per_instance();
  const std::uint32_t first = instance * local;
  const InstanceView& view = instances_[instance];
  const std::string who = local == 1 ? fmt::format("replica {}", first)
                                     : fmt::format("replicas {}-{}", first, first + local - 1);
  const std::string pid = view.joined ? fmt::format(", pid {}", view.pid) : "";
  return fmt::format("{} (instance {}, host {}{})", who, instance, view.host, pid);
}

std::string JobState::where(std::uint32_t instance) const {
  const InstanceView& view = instances_[instance];
  if (!view.joined) {
    return "before it joined the job";
  }
  const auto behind = std::ranges::min_element(view.replicas, {}, &ReplicaView::step);
  return behind->activity.empty()
             ? fmt::format("at step {}", behind->step)
             : fmt::format("at step {}, in {}", behind->step, behind->activity);
}

std::string JobState::last_lines(std::uint32_t instance) const {
  return fmt::format(
      "last lines in {}/{}", log_folder_,
      replica_log_name(instance * placement_.replicas_per_instance(), placement_.num_replicas));
}

Verdict JobState::told_verdict(const proto::Failure& failure) const {
  Verdict verdict;
  verdict.exit_code = static_cast<int>(failure.exit_code());
  const std::string& message = failure.message();
  const std::size_t end = message.find('\n');
  verdict.first_line = message.substr(0, end);
  if (failure.instance() < instances_.size() && !blames_the_request(failure.exit_code())) {
    verdict.instance = failure.instance();
    verdict.first_line = fmt::format("{} {}: {}", describe(failure.instance()),
                                     where(failure.instance()), message.substr(0, end));
  }
  for (std::size_t begin = end; begin != std::string::npos;) {
    const std::size_t next = message.find('\n', begin + 1);
    verdict.more.push_back(
        message.substr(begin + 1, next == std::string::npos ? next : next - begin - 1));
    begin = next;
  }
  return verdict;
}

std::optional<Verdict> JobState::verdict(double now) const {
  const auto own_reason = std::ranges::find_if(failures_, [](const proto::Failure& f) {
    return f.exit_code() != static_cast<std::uint32_t>(kInfrastructure);
  });
  if (own_reason != failures_.end()) {
    return told_verdict(*own_reason);
  }
  Verdict verdict;
  verdict.exit_code = kInfrastructure;
  if (rank_end_ && rank_end_->rank < instances_.size()) {
    verdict.instance = rank_end_->rank;
    const std::string who = describe(rank_end_->rank);
    if (rank_end_->signal != 0) {
      verdict.first_line =
          fmt::format("{} was killed by {} {}; {}", who, signal_text(rank_end_->signal),
                      where(rank_end_->rank), last_lines(rank_end_->rank));
    } else {
      verdict.exit_code = rank_end_->exit_code == 0 ? kInfrastructure : rank_end_->exit_code;
      verdict.first_line = fmt::format("{} exited with code {} {}; {}", who, rank_end_->exit_code,
                                       where(rank_end_->rank), last_lines(rank_end_->rank));
    }
    // A replica that exits because it lost a peer has said so.
    const auto said = std::ranges::find(failures_, rank_end_->rank, &proto::Failure::instance);
    if (said != failures_.end()) {
      return told_verdict(*said);
    }
  } else if (first_lost_) {
    verdict.instance = *first_lost_;
    verdict.first_line =
        fmt::format("{} died {} (its heartbeat connection broke); {}", describe(*first_lost_),
                    where(*first_lost_), last_lines(*first_lost_));
  } else if (!failures_.empty()) {
    return told_verdict(failures_.front());
  } else {
    return std::nullopt;
  }
  verdict.more = meanwhile(verdict.instance, now);
  return verdict;
}

Verdict JobState::silence_verdict(std::uint32_t instance, double now) const {
  Verdict verdict;
  verdict.exit_code = kInfrastructure;
  verdict.instance = instance;
  verdict.first_line =
      fmt::format("{} gave no heartbeat for {:.1f} s {}; is it stopped, or its host cut off? {}",
                  describe(instance), now - instances_[instance].last_sign, where(instance),
                  last_lines(instance));
  verdict.more = meanwhile(instance, now);
  return verdict;
}

Verdict JobState::absence_verdict(double waited_seconds) const {
  Verdict verdict;
  verdict.exit_code = kInfrastructure;
  std::vector<std::uint32_t> absent;
  for (std::uint32_t i = 0; i < instances_.size(); ++i) {
    if (!instances_[i].joined) {
      absent.push_back(i);
    }
  }
  verdict.instance = absent.front();
  verdict.first_line =
      fmt::format("instance{} {} did not join within {:.0f} s (first one on host {})",
                  absent.size() == 1 ? "" : "s", number_ranges(absent), waited_seconds,
                  instances_[absent.front()].host);
  return verdict;
}

std::vector<std::string> JobState::meanwhile(std::optional<std::uint32_t> except,
                                             double now) const {
  constexpr std::size_t kGroupsMax = 3;
  struct Group {
    std::vector<std::uint32_t> replicas;
    double since = 0;
  };
  std::map<std::pair<std::uint64_t, std::string>, Group> groups;
  for (std::uint32_t i = 0; i < instances_.size(); ++i) {
    if (i == except || !instances_[i].joined || instances_[i].left) {
      continue;
    }
    for (std::uint32_t local = 0; local < instances_[i].replicas.size(); ++local) {
      const ReplicaView& replica = instances_[i].replicas[local];
      Group& group = groups[{replica.step, replica.activity}];
      group.since = group.replicas.empty() ? replica.since : std::max(group.since, replica.since);
      group.replicas.push_back(i * placement_.replicas_per_instance() + local);
    }
  }
  std::vector<std::string> lines;
  for (const auto& [key, group] : groups) {
    if (lines.size() == kGroupsMax) {
      lines.push_back(fmt::format("and {} other groups", groups.size() - kGroupsMax));
      break;
    }
    const bool one = group.replicas.size() == 1;
    lines.push_back(fmt::format("meanwhile replica{} {} {} at step {}, in {} for {:.1f} s",
                                one ? "" : "s", number_ranges(group.replicas), one ? "was" : "were",
                                key.first, key.second.empty() ? "start-up" : key.second,
                                std::max(0.0, now - group.since)));
  }
  return lines;
}

std::string replica_log_name(std::uint32_t replica, std::uint32_t replicas) {
  const std::size_t digits = std::max<std::size_t>(2, std::to_string(replicas - 1).size());
  return fmt::format("replica-{:0{}}.log", replica, digits);
}

std::string number_ranges(std::span<const std::uint32_t> numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) {
      ++last;
    }
    text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[i]);
    if (last > i) {
      text += fmt::format("{}{}", last == i + 1 ? ", " : "-", numbers[last]);
    }
    i = last + 1;
  }
  return text;
}

}  // namespace poprun::launcher
