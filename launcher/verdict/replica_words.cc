#include "launcher/verdict/replica_words.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "replica/base/text.h"

namespace poprun::launcher {
namespace {

constexpr double kTellingSeconds = 1;  // A shorter duration is not worth mentioning.

/// Replicas with the same activity.
struct Group {
  std::vector<std::uint32_t> replicas;
  std::uint64_t first_step = 0;
  std::uint64_t last_step = 0;
  double since = 0;      ///< Time at which the last of the replicas began the activity.
  double last_sign = 0;  ///< Time of the oldest of these replicas' last heartbeats.
};

/// Groups, keyed by whether the state is known exactly, by the step if the state is, and by the activity.
using Groups = std::map<std::tuple<bool, std::uint64_t, std::string>, Group>;

Groups groups_of(const JobState& state, std::span<const std::uint32_t> replicas) {
  Groups groups;
  const std::uint32_t local = state.placement().replicas_per_instance();
  for (const std::uint32_t r : replicas) {
    const InstanceView& instance = state.instances()[r / local];
    const ReplicaView& replica = instance.replicas[r % local];
    const auto [found, is_new] =
        groups.try_emplace({replica.is_last, replica.is_last ? replica.step : 0, replica.activity},
                           Group{{}, replica.step, replica.step, replica.since, instance.last_sign});
    Group& group = found->second;
    group.first_step = std::min(group.first_step, replica.step);
    group.last_step = std::max(group.last_step, replica.step);
    group.since = std::max(group.since, replica.since);
    group.last_sign = std::min(group.last_sign, instance.last_sign);
    group.replicas.push_back(r);
  }
  return groups;
}

std::string numbered(std::span<const std::uint32_t> replicas) {
  return fmt::format("replica{} {}", replicas.size() == 1 ? "" : "s", number_ranges(replicas));
}

std::string did(const Groups::value_type& entry, double now) {
  const auto& [key, group] = entry;
  const auto& [is_exact, exact_step, activity] = key;
  if (activity.empty()) {
    return numbered(group.replicas) + " had only started up";
  }
  const bool one = group.replicas.size() == 1;
  const std::string who = fmt::format("{} {}", numbered(group.replicas), one ? "was" : "were");
  if (is_exact) {
    return fmt::format("{} at step {} ({}) for {:.1f} s", who, exact_step, activity, std::max(0.0, now - group.since));
  }
  const std::string steps = group.first_step == group.last_step
                                ? std::to_string(group.first_step)
                                : fmt::format("{}-{}", group.first_step, group.last_step);
  const double took = group.last_sign - group.since;
  return fmt::format("{} at step {} or later ({}{} at {} last heartbeat, {:.1f} s ago)", who, steps, activity,
                     took >= kTellingSeconds ? fmt::format(" for {:.1f} s", took) : "", one ? "its" : "their",
                     now - group.last_sign);
}

std::vector<std::string> hosts_of(const JobState& state, std::span<const std::uint32_t> replicas) {
  std::vector<std::string> hosts;
  for (const std::uint32_t replica : replicas) {
    const std::string& host = state.instances()[state.placement().instance_of(replica)].host;
    if (std::ranges::find(hosts, host) == hosts.end()) {
      hosts.push_back(host);
    }
  }
  return hosts;
}

}  // namespace

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

std::string describe(const JobState& state, std::uint32_t instance) {
  const std::uint32_t local = state.placement().replicas_per_instance();
  const std::uint32_t first = instance * local;
  const InstanceView& view = state.instances()[instance];
  const std::string who =
      local == 1 ? fmt::format("replica {}", first) : fmt::format("replicas {}-{}", first, first + local - 1);
  const std::string pid = view.joined ? fmt::format(", pid {}", view.pid) : "";
  return fmt::format("{} (instance {}, host {}{})", who, instance, view.host, pid);
}

bool are_whole_hosts(const JobState& state, std::span<const std::uint32_t> replicas) {
  const std::vector<std::string> hosts = hosts_of(state, replicas);
  std::size_t there = 0;
  for (std::uint32_t r = 0; r < state.placement().num_replicas; ++r) {
    const std::string& host = state.instances()[state.placement().instance_of(r)].host;
    if (std::ranges::find(hosts, host) != hosts.end()) {
      ++there;
    }
  }
  return there == replicas.size() && there > hosts.size() && there < state.placement().num_replicas;
}

std::string describe_replicas(const JobState& state, std::span<const std::uint32_t> replicas) {
  const std::vector<std::string> hosts = hosts_of(state, replicas);
  const std::string on = fmt::format("host{} {}", hosts.size() == 1 ? "" : "s", fmt::join(hosts, ", "));
  if (are_whole_hosts(state, replicas)) {
    return fmt::format("{} ({})", on, numbered(replicas));
  }
  const std::uint32_t first = state.placement().instance_of(replicas.front());
  const bool one = first == state.placement().instance_of(replicas.back());
  return fmt::format("{} ({})", numbered(replicas),
                     one ? fmt::format("instance {}, {}, pid {}", first, on, state.instances()[first].pid) : on);
}

std::vector<std::uint32_t> replicas_of(const JobState& state, std::span<const std::uint32_t> instances) {
  const std::uint32_t local = state.placement().replicas_per_instance();
  std::vector<std::uint32_t> replicas;
  for (const std::uint32_t instance : instances) {
    for (std::uint32_t r = 0; r < local; ++r) {
      replicas.push_back(instance * local + r);
    }
  }
  return replicas;
}

std::string where(const JobState& state, std::uint32_t instance, double now) {
  const InstanceView& view = state.instances()[instance];
  if (!view.joined) {
    return "before it joined the job";
  }
  const auto behind = std::ranges::min_element(view.replicas, {}, &ReplicaView::step);
  if (behind->activity.empty()) {
    return "before its first heartbeat";
  }
  return behind->is_last ? fmt::format("at step {} ({})", behind->step, behind->activity)
                         : fmt::format("at step {} or later ({} at its last heartbeat, {:.1f} s ago)", behind->step,
                                       behind->activity, now - view.last_sign);
}

std::vector<std::string> what_they_did(const JobState& state, std::span<const std::uint32_t> replicas, double now) {
  std::vector<std::string> lines;
  for (const auto& group : groups_of(state, replicas)) {
    lines.push_back(did(group, now));
  }
  return lines;
}

std::vector<std::string> meanwhile(const JobState& state, std::span<const std::uint32_t> except, double now) {
  constexpr std::size_t kGroupsMax = 3;
  std::vector<std::uint32_t> others;
  for (std::uint32_t i = 0; i < state.instances().size(); ++i) {
    const InstanceView& instance = state.instances()[i];
    // This includes lost replicas, since mpirun ends all replicas when it notices that one of them is lost.
    if (std::ranges::find(except, i) == except.end() && instance.joined && !instance.left) {
      others.push_back(i);
    }
  }
  std::vector<std::string> lines = what_they_did(state, replicas_of(state, others), now);
  for (std::string& line : lines) {
    line = "  meanwhile " + line;
  }
  if (lines.size() > kGroupsMax) {
    const std::size_t more = lines.size() - kGroupsMax;
    lines.resize(kGroupsMax);
    lines.push_back(fmt::format("  and {} of replicas", counted(more, "more group")));
  }
  return lines;
}

}  // namespace poprun::launcher
