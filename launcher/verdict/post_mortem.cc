#include "launcher/verdict/post_mortem.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <sys/wait.h>

#include "launcher/process/exit_text.h"

namespace poprun::launcher {
namespace {

constexpr int kInfrastructure = exit_code_of(ErrorCode::kInfrastructure);
constexpr int kCallsShown = 3;  ///< On the console; the file has all of them.

/// A signal, or the codes by which mpirun, its daemons and ssh tell of failures of their own (205,
/// 254, 255) and shells of signals: running again can work.
bool is_infrastructure(int status) {
  return !WIFEXITED(status) || WEXITSTATUS(status) > 128;
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

/// Replicas at the same step and activity.
struct Company {
  std::vector<std::uint32_t> replicas;
  double since = 0;      ///< When the last of them came to it.
  double last_sign = 0;  ///< The oldest one of theirs.
};

using Companies = std::map<std::pair<std::uint64_t, std::string>, Company>;

Companies companies_of(const JobState& state, std::span<const std::uint32_t> replicas) {
  Companies companies;
  const std::uint32_t local = state.placement().replicas_per_instance();
  for (const std::uint32_t r : replicas) {
    const InstanceView& instance = state.instances()[r / local];
    const ReplicaView& replica = instance.replicas[r % local];
    const auto [found, is_new] = companies.try_emplace(
        {replica.step, replica.activity}, Company{{}, replica.since, instance.last_sign});
    Company& company = found->second;
    company.since = std::max(company.since, replica.since);
    company.last_sign = std::min(company.last_sign, instance.last_sign);
    company.replicas.push_back(r);
  }
  return companies;
}

/// `replica 3 was at step 4 (conv1) for 2.1 s`.
std::string did(const Companies::value_type& company, double now) {
  const auto& [place, its] = company;
  const bool one = its.replicas.size() == 1;
  const std::string who = fmt::format("replica{} {}", one ? "" : "s", number_ranges(its.replicas));
  return place.second.empty()
             ? who + " started up"
             : fmt::format("{} {} at step {} ({}) for {:.1f} s", who, one ? "was" : "were",
                           place.first, place.second, std::max(0.0, now - its.since));
}

std::vector<std::uint32_t> replicas_of(const JobState& state,
                                       std::span<const std::uint32_t> instances) {
  const std::uint32_t local = state.placement().replicas_per_instance();
  std::vector<std::uint32_t> replicas;
  for (const std::uint32_t instance : instances) {
    for (std::uint32_t r = 0; r < local; ++r) {
      replicas.push_back(instance * local + r);
    }
  }
  return replicas;
}

/// `replica 5 (instance 5, host node1, pid 4711)`, `replicas 2, 3 (host node1)`. Requires: rising.
std::string describe_replicas(const JobState& state, std::span<const std::uint32_t> replicas) {
  const std::uint32_t local = state.placement().replicas_per_instance();
  std::vector<std::string> hosts;
  for (const std::uint32_t replica : replicas) {
    const std::string& host = state.instances()[replica / local].host;
    if (std::ranges::find(hosts, host) == hosts.end()) {
      hosts.push_back(host);
    }
  }
  const std::uint32_t first = replicas.front() / local;
  const std::string where =
      first == replicas.back() / local
          ? fmt::format("instance {}, host {}, pid {}", first, hosts[0],
                        state.instances()[first].pid)
          : fmt::format("host{} {}", hosts.size() == 1 ? "" : "s", fmt::join(hosts, ", "));
  return fmt::format("replica{} {} ({})", replicas.size() == 1 ? "" : "s", number_ranges(replicas),
                     where);
}

/// The lines that follow the first one of a message.
std::vector<std::string> lines_after_first(const std::string& message) {
  std::vector<std::string> lines;
  for (std::size_t begin = message.find('\n'); begin != std::string::npos;) {
    const std::size_t next = message.find('\n', begin + 1);
    lines.push_back(message.substr(begin + 1, next == std::string::npos ? next : next - begin - 1));
    begin = next;
  }
  return lines;
}

void append(std::vector<std::string>& lines, std::vector<std::string> more) {
  lines.insert(lines.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
}

/// The end of what an instance's replica exchanged.
std::vector<std::string> last_calls(const proto::Failure& failure, int count) {
  std::vector<std::string> lines;
  const int calls = failure.recent_calls_size();
  if (calls > 0) {
    lines.push_back(fmt::format("  last exchanges of replica {}:", failure.replica()));
  }
  for (int i = std::max(0, calls - count); i < calls; ++i) {
    lines.push_back("    " + failure.recent_calls(i));
  }
  return lines;
}

/// What a failure is about, a line each.
std::vector<std::string> facts_of(const proto::Failure& failure) {
  std::vector<std::string> lines;
  if (failure.missing_size() > 0) {
    const std::vector<std::uint32_t> missing{failure.missing().begin(), failure.missing().end()};
    lines.push_back(fmt::format("  missing: replica{} {}", missing.size() == 1 ? "" : "s",
                                number_ranges(missing)));
  }
  if (!failure.address().empty()) {
    lines.push_back("  address: " + failure.address());
  }
  if (failure.has_needed_bytes()) {
    lines.push_back(
        fmt::format("  needed: {} B, had: {} B", failure.needed_bytes(), failure.had_bytes()));
  }
  return lines;
}

/// The replicas that one waited for in vain, as far as they belong to the job; rising.
std::vector<std::uint32_t> missed_replicas(const JobState& state, const proto::Failure& failure) {
  std::vector<std::uint32_t> replicas;
  std::ranges::copy_if(failure.missing(), std::back_inserter(replicas),
                       [&](std::uint32_t r) { return r < state.placement().num_replicas; });
  std::ranges::sort(replicas);
  return replicas;
}

/// A replica waited in vain: those that it waited for are to blame, and not itself.
Verdict missed_verdict(const JobState& state, const proto::Failure& failure,
                       const std::vector<std::uint32_t>& missed, double now) {
  std::vector<std::uint32_t> instances;
  for (const std::uint32_t replica : missed) {
    const std::uint32_t instance = replica / state.placement().replicas_per_instance();
    if (instances.empty() || instances.back() != instance) {
      instances.push_back(instance);
    }
  }
  Verdict verdict;
  verdict.exit_code = static_cast<int>(failure.exit_code());
  verdict.instance = instances.front();
  verdict.first_line = fmt::format("{} {} missing: {}", describe_replicas(state, missed),
                                   missed.size() == 1 ? "is" : "are", failure.message());
  for (const auto& company : companies_of(state, missed)) {
    verdict.more.push_back(fmt::format("  missing {}, and gave its last heartbeat {:.1f} s ago",
                                       did(company, now), now - company.second.last_sign));
  }
  append(verdict.more, meanwhile(state, instances, now));
  append(verdict.more, last_calls(failure, kCallsShown));
  return verdict;
}

/// An instance's own words: the first line with who and where, the rest (a table) as it is.
Verdict told_verdict(const JobState& state, const proto::Failure& failure, double now) {
  if (const auto missed = missed_replicas(state, failure); !missed.empty()) {
    return missed_verdict(state, failure, missed, now);
  }
  Verdict verdict;
  verdict.exit_code = static_cast<int>(failure.exit_code());
  verdict.first_line = failure.message().substr(0, failure.message().find('\n'));
  verdict.more = lines_after_first(failure.message());
  if (failure.instance() < state.instances().size() && !blames_the_request(failure.exit_code())) {
    verdict.instance = failure.instance();
    verdict.first_line = fmt::format("{} {}: {}", describe(state, failure.instance()),
                                     where(state, failure.instance()), verdict.first_line);
    append(verdict.more, last_calls(failure, kCallsShown));
  }
  return verdict;
}

Verdict noticed_verdict(const JobState& state, const RankEnd& end, double now) {
  const auto said = std::ranges::find(state.failures(), end.rank, &proto::Failure::instance);
  if (said != state.failures().end()) {
    return told_verdict(state, *said, now);
  }
  Verdict verdict;
  verdict.instance = end.rank;
  verdict.exit_code = end.exit_code == 0 ? kInfrastructure : end.exit_code;
  verdict.first_line =
      fmt::format("{} {} {}", describe(state, end.rank),
                  exit_text(W_EXITCODE(end.exit_code, end.signal)), where(state, end.rank));
  verdict.more = meanwhile(state, std::span(&end.rank, 1), now);
  return verdict;
}

}  // namespace

std::optional<Verdict> name_cause(const JobState& state, double now, double quiet) {
  const auto cause = std::ranges::find_if(state.failures(), is_cause);
  if (cause != state.failures().end()) {
    return told_verdict(state, *cause, now);
  }
  if (state.rank_end() && state.rank_end()->rank < state.instances().size()) {
    return noticed_verdict(state, *state.rank_end(), now);
  }
  if (state.first_lost()) {
    // Where a host is cut off, mpirun ends the replicas on all others.
    if (const auto silent = state.silent(now, quiet); !silent.empty()) {
      return silence_verdict(state, silent, now);
    }
    const std::uint32_t lost = *state.first_lost();
    return Verdict{kInfrastructure,
                   fmt::format("{} died {}: its heartbeat connection broke", describe(state, lost),
                               where(state, lost)),
                   meanwhile(state, std::span(&lost, 1), now), lost};
  }
  if (!state.failures().empty()) {
    return told_verdict(state, state.failures().front(), now);
  }
  return std::nullopt;
}

Verdict silence_verdict(const JobState& state, std::span<const std::uint32_t> instances,
                        double now) {
  const std::uint32_t longest = *std::ranges::min_element(
      instances, {}, [&](std::uint32_t i) { return state.instances()[i].last_sign; });
  return {kInfrastructure,
          fmt::format("{} gave no heartbeat for {:.1f} s {}; {} stopped, or {} host cut off?",
                      describe_replicas(state, replicas_of(state, instances)),
                      now - state.instances()[longest].last_sign, where(state, longest),
                      instances.size() == 1 ? "is it" : "are they",
                      instances.size() == 1 ? "its" : "their"),
          meanwhile(state, instances, now), longest};
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

Verdict timeout_verdict(const JobState& state, double limit_seconds, std::uint64_t total_steps,
                        double now) {
  return {kInfrastructure,
          fmt::format(
              "the job is not done after {} s, the limit of --timeout; it {}", limit_seconds,
              state.step() == 0 ? "had not done a step yet"
                                : fmt::format("was at step {} of {}", state.step(), total_steps)),
          meanwhile(state, {}, now)};
}

Verdict mpirun_verdict(const JobState& state, int status, const MpirunNotices& notices,
                       const std::string& logs) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    return {kInfrastructure, "all instances ended without reporting their results; see " + logs};
  }
  const std::string ended = "mpirun " + exit_text(status);
  const std::string essential = notices.essential();
  if (std::ranges::none_of(state.instances(), &InstanceView::joined)) {
    return {exit_code_of(notices.refuses_arguments() ? ErrorCode::kUsage : ErrorCode::kUnreachable),
            "no replica could be started: " + (essential.empty() ? ended : essential)};
  }
  return {is_infrastructure(status) ? kInfrastructure : WEXITSTATUS(status),
          fmt::format("{} at step {}{}{}", ended, state.step(), essential.empty() ? "" : ": ",
                      essential)};
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

std::vector<std::string> meanwhile(const JobState& state, std::span<const std::uint32_t> except,
                                   double now) {
  constexpr std::size_t kCompaniesMax = 3;
  std::vector<std::uint32_t> others;
  for (std::uint32_t i = 0; i < state.instances().size(); ++i) {
    const InstanceView& instance = state.instances()[i];
    // Also those that are lost meanwhile: mpirun ends all once it knows of the first.
    if (std::ranges::find(except, i) == except.end() && instance.joined && !instance.left) {
      others.push_back(i);
    }
  }
  const Companies companies = companies_of(state, replicas_of(state, others));
  std::vector<std::string> lines;
  for (const auto& company : companies) {
    if (lines.size() == kCompaniesMax) {
      lines.push_back(
          fmt::format("  and {} groups of replicas more", companies.size() - kCompaniesMax));
      break;
    }
    lines.push_back("  meanwhile " + did(company, now));
  }
  return lines;
}

std::string failure_report(const JobState& state, const Verdict& verdict, double now) {
  std::vector<std::string> lines = {verdict.first_line};
  append(lines, verdict.more);
  lines.emplace_back("\nwhat each replica did last:");
  const std::uint32_t local = state.placement().replicas_per_instance();
  for (std::uint32_t i = 0; i < state.instances().size(); ++i) {
    const InstanceView& instance = state.instances()[i];
    const char* end = instance.left ? "left" : instance.lost ? "broke off" : "last heartbeat";
    for (std::uint32_t r = i * local; instance.joined && r < (i + 1) * local; ++r) {
      lines.push_back(fmt::format(
          "  {}; host {}, pid {}, {}{}", did(*companies_of(state, std::span(&r, 1)).begin(), now),
          instance.host, instance.pid, end,
          instance.left || instance.lost ? ""
                                         : fmt::format(" {:.1f} s ago", now - instance.last_sign)));
    }
    if (!instance.joined) {
      lines.push_back(fmt::format("  instance {} on host {} did not join", i, instance.host));
    }
  }
  for (const proto::Failure& failure : state.failures()) {
    lines.push_back(fmt::format("\nreplica {} on host {} left with code {}: {}", failure.replica(),
                                failure.host(), failure.exit_code(), failure.message()));
    append(lines, facts_of(failure));
    append(lines, last_calls(failure, failure.recent_calls_size()));
  }
  return fmt::format("{}\n", fmt::join(lines, "\n"));
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
