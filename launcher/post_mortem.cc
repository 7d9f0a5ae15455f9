#include "launcher/post_mortem.h"

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

/// A replica that lost a peer is a consequence; every other reason is a cause.
bool is_cause(const proto::Failure& failure) {
  return failure.exit_code() != static_cast<std::uint32_t>(kInfrastructure);
}

/// Where an instance was, by its replica that is furthest behind.
std::string where(const JobState& state, std::uint32_t instance) {
  const InstanceView& view = state.instances()[instance];
  if (!view.joined) {
    return "before it joined the job";
  }
  const auto behind = std::ranges::min_element(view.replicas, {}, &ReplicaView::step);
  return behind->activity.empty() ? fmt::format("at step {}", behind->step)
                                  : fmt::format("at step {} ({})", behind->step, behind->activity);
}

/// An instance's own words: the first line with who and where, the rest (a table) as it is.
Verdict told_verdict(const JobState& state, const proto::Failure& failure) {
  Verdict verdict;
  verdict.exit_code = static_cast<int>(failure.exit_code());
  const std::string& message = failure.message();
  const std::size_t end = message.find('\n');
  verdict.first_line = message.substr(0, end);
  if (failure.instance() < state.instances().size() && !blames_the_request(failure.exit_code())) {
    verdict.instance = failure.instance();
    verdict.first_line = fmt::format("{} {}: {}", describe(state, failure.instance()),
                                     where(state, failure.instance()), message.substr(0, end));
  }
  for (std::size_t begin = end; begin != std::string::npos;) {
    const std::size_t next = message.find('\n', begin + 1);
    verdict.more.push_back(
        message.substr(begin + 1, next == std::string::npos ? next : next - begin - 1));
    begin = next;
  }
  return verdict;
}

Verdict noticed_verdict(const JobState& state, const RankEnd& end, double now) {
  const auto said = std::ranges::find(state.failures(), end.rank, &proto::Failure::instance);
  if (said != state.failures().end()) {
    return told_verdict(state, *said);
  }
  Verdict verdict;
  verdict.instance = end.rank;
  verdict.exit_code = end.exit_code == 0 ? kInfrastructure : end.exit_code;
  const std::string how = end.signal != 0 ? fmt::format("was killed by {}", signal_text(end.signal))
                                          : fmt::format("exited with code {}", end.exit_code);
  verdict.first_line =
      fmt::format("{} {} {}", describe(state, end.rank), how, where(state, end.rank));
  verdict.more = meanwhile(state, end.rank, now);
  return verdict;
}

}  // namespace

std::optional<Verdict> name_cause(const JobState& state, double now) {
  const auto cause = std::ranges::find_if(state.failures(), is_cause);
  if (cause != state.failures().end()) {
    return told_verdict(state, *cause);
  }
  if (state.rank_end() && state.rank_end()->rank < state.instances().size()) {
    return noticed_verdict(state, *state.rank_end(), now);
  }
  if (state.first_lost()) {
    const std::uint32_t lost = *state.first_lost();
    return Verdict{kInfrastructure,
                   fmt::format("{} died {}: its heartbeat connection broke", describe(state, lost),
                               where(state, lost)),
                   meanwhile(state, lost, now), lost};
  }
  if (!state.failures().empty()) {
    return told_verdict(state, state.failures().front());
  }
  return std::nullopt;
}

Verdict silence_verdict(const JobState& state, std::uint32_t instance, double now) {
  return {kInfrastructure,
          fmt::format("{} gave no heartbeat for {:.1f} s {}; is it stopped, or its host cut off?",
                      describe(state, instance), now - state.instances()[instance].last_sign,
                      where(state, instance)),
          meanwhile(state, instance, now), instance};
}

Verdict absence_verdict(const JobState& state, double waited_seconds) {
  std::vector<std::uint32_t> absent;
  for (std::uint32_t i = 0; i < state.instances().size(); ++i) {
    if (!state.instances()[i].joined) {
      absent.push_back(i);
    }
  }
  POPRUN_CHECK(!absent.empty());
  return {kInfrastructure,
          fmt::format("instance{} {} did not join within {:.0f} s; the first of them on host {}",
                      absent.size() == 1 ? "" : "s", number_ranges(absent), waited_seconds,
                      state.instances()[absent.front()].host),
          {},
          absent.front()};
}

std::string describe(const JobState& state, std::uint32_t instance) {
  const std::uint32_t local = state.placement().replicas_per_instance();
  const std::uint32_t first = instance * local;
  const InstanceView& view = state.instances()[instance];
  const std::string who = local == 1 ? fmt::format("replica {}", first)
                                     : fmt::format("replicas {}-{}", first, first + local - 1);
  const std::string pid = view.joined ? fmt::format(", pid {}", view.pid) : "";
  return fmt::format("{} (instance {}, host {}{})", who, instance, view.host, pid);
}

std::vector<std::string> meanwhile(const JobState& state, std::optional<std::uint32_t> except,
                                   double now) {
  constexpr std::size_t kGroupsMax = 3;
  struct Group {
    std::vector<std::uint32_t> replicas;
    double since = 0;  ///< When the last of them came to it.
  };
  std::map<std::pair<std::uint64_t, std::string>, Group> groups;
  const std::uint32_t local = state.placement().replicas_per_instance();
  for (std::uint32_t i = 0; i < state.instances().size(); ++i) {
    const InstanceView& instance = state.instances()[i];
    if (i == except || !instance.joined || instance.left || instance.lost) {
      continue;
    }
    for (std::uint32_t r = 0; r < local; ++r) {
      const ReplicaView& replica = instance.replicas[r];
      Group& group = groups[{replica.step, replica.activity}];
      group.since = group.replicas.empty() ? replica.since : std::max(group.since, replica.since);
      group.replicas.push_back(i * local + r);
    }
  }
  std::vector<std::string> lines;
  for (const auto& [key, group] : groups) {
    if (lines.size() == kGroupsMax) {
      lines.push_back(fmt::format("  and {} groups of replicas more", groups.size() - kGroupsMax));
      break;
    }
    const bool one = group.replicas.size() == 1;
    lines.push_back(key.second.empty()
                        ? fmt::format("  meanwhile replica{} {} started up", one ? "" : "s",
                                      number_ranges(group.replicas))
                        : fmt::format("  meanwhile replica{} {} {} at step {} ({}) for {:.1f} s",
                                      one ? "" : "s", number_ranges(group.replicas),
                                      one ? "was" : "were", key.first, key.second,
                                      std::max(0.0, now - group.since)));
  }
  return lines;
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
