#include "launcher/verdict/post_mortem.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>

#include "launcher/placement/hosts.h"
#include "launcher/process/process_handle.h"
#include "launcher/verdict/replica_words.h"

namespace poprun::launcher {
namespace {

constexpr int kInfrastructure = exit_code_of(ErrorCode::kInfrastructure);
constexpr int kCallsShown = 3;      ///< Number of exchanges on the console; failure.txt lists all of them.
constexpr double kInItSeconds = 1;  ///< After this delay, heartbeats show whether other replicas are waiting, too.

/// Returns whether the status means a signal (including one that a shell reports as a code), or a failure of mpirun
/// itself, of its daemons, or of ssh (codes 205, 254, 255). In these cases, a restart may help.
bool is_infrastructure(int status) {
  return !WIFEXITED(status) || WEXITSTATUS(status) > 128;
}

/// Returns whether every replica would report this error, so that it does not matter which one reported it first.
bool blames_the_request(std::uint32_t code) {
  return code == static_cast<std::uint32_t>(ErrorCode::kUsage) ||
         code == static_cast<std::uint32_t>(ErrorCode::kData) ||
         code == static_cast<std::uint32_t>(ErrorCode::kOutOfMemory);
}

/// Returns whether a failure is a root cause. The failure of a replica that lost a peer is only a consequence.
bool is_cause(const proto::Failure& failure) {
  return failure.exit_code() != static_cast<std::uint32_t>(kInfrastructure);
}

std::vector<std::string> lines_after_first(const std::string& message) {
  std::vector<std::string> lines;
  for (std::size_t begin = message.find('\n'); begin != std::string::npos;) {
    const std::size_t next = message.find('\n', begin + 1);
    lines.push_back(message.substr(begin + 1, next == std::string::npos ? next : next - begin - 1));
    begin = next;
  }
  return lines;
}

/// Returns the replicas that a replica waited for in vain, in ascending order. Ignores those outside the job.
std::vector<std::uint32_t> missed_replicas(const JobState& state, const proto::Failure& failure) {
  std::vector<std::uint32_t> replicas;
  std::ranges::copy_if(failure.missing(), std::back_inserter(replicas),
                       [&](std::uint32_t r) { return r < state.placement().num_replicas; });
  std::ranges::sort(replicas);
  return replicas;
}

/// Returns whether any of these replicas' heartbeats is younger than half of `quiet`, the suspicious length of a
/// silence. On a link that loses packets, heartbeats are late. On a link that is cut, they stop.
bool still_beats(const JobState& state, std::span<const std::uint32_t> replicas, double now, double quiet) {
  return std::ranges::any_of(replicas, [&](std::uint32_t replica) {
    const InstanceView& instance = state.instances()[state.placement().instance_of(replica)];
    return now - instance.last_sign <= quiet / 2;
  });
}

/// Amends a verdict that is not certain. If packets are being lost and the accused are alive, blames the network
/// instead. If the accused are dead, their death may be why packets are lost, so the losses are only mentioned.
Verdict unless_network(const JobState& state, Verdict verdict, bool accused_live, double now) {
  const std::vector<PacketLoss> losses = state.losses().found(now);
  if (losses.empty()) {
    return verdict;
  }
  if (!accused_live) {
    verdict.more.push_back("  " + describe(losses));
    return verdict;
  }
  verdict.more.insert(verdict.more.begin(), "  as a result: " + verdict.first_line);
  verdict.first_line = describe(losses);
  verdict.instance.reset();
  return verdict;
}

/// Returns the replicas in `missed` that, according to recent enough heartbeats, are themselves waiting in the same
/// exchange as the replica that misses them.
std::vector<std::uint32_t> waiting_too(const JobState& state, const proto::Failure& failure,
                                       std::span<const std::uint32_t> missed) {
  const auto view_of = [&](std::uint32_t replica) -> const ReplicaView& {
    const std::uint32_t local = state.placement().replicas_per_instance();
    return state.instances()[replica / local].replicas[replica % local];
  };
  std::vector<std::uint32_t> waiting;
  if (failure.replica() >= state.placement().num_replicas) {
    return waiting;
  }
  const ReplicaView& mine = view_of(failure.replica());
  if (!mine.is_last) {
    return waiting;
  }
  std::ranges::copy_if(missed, std::back_inserter(waiting), [&](std::uint32_t replica) {
    const ReplicaView& its = view_of(replica);
    const InstanceView& instance = state.instances()[state.placement().instance_of(replica)];
    return its.step == mine.step && its.activity == mine.activity && instance.last_sign >= mine.since + kInItSeconds;
  });
  return waiting;
}

/// Blames the replicas that a replica waited for in vain or, if all of them are waiting, too, the network between them.
Verdict missed_verdict(const JobState& state, const proto::Failure& failure, std::vector<std::uint32_t> missed,
                       double now, double quiet) {
  const std::vector<std::uint32_t> waiting = waiting_too(state, failure, missed);
  const bool nobody = waiting.size() == missed.size();
  if (!nobody) {
    std::erase_if(missed, [&](std::uint32_t r) { return std::ranges::count(waiting, r) > 0; });
  }
  std::vector<std::uint32_t> instances;
  for (const std::uint32_t replica : missed) {
    const std::uint32_t instance = state.placement().instance_of(replica);
    if (instances.empty() || instances.back() != instance) {
      instances.push_back(instance);
    }
  }
  Verdict verdict;
  verdict.exit_code = static_cast<int>(failure.exit_code());
  if (nobody) {
    verdict.first_line = fmt::format(
        "the exchange between {} and {} is making no progress: {}; yet all of these replicas are waiting in it",
        describe(state, failure.instance()), describe_replicas(state, missed), failure.message());
    verdict.more = meanwhile(state, {}, now);
  } else {
    verdict.instance = instances.front();
    verdict.first_line =
        fmt::format("{} {} missing: {}", describe_replicas(state, missed),
                    missed.size() == 1 || are_whole_hosts(state, missed) ? "is" : "are", failure.message());
    for (const std::string& did : what_they_did(state, missed, now)) {
      verdict.more.push_back("  missing " + did);
    }
    append(verdict.more, meanwhile(state, instances, now));
  }
  append(verdict.more, last_calls(failure, kCallsShown));
  return unless_network(state, std::move(verdict), still_beats(state, missed, now, quiet), now);
}

/// Adds the replica and host to the first line of an instance's own message. Keeps the other lines (a table) unchanged.
Verdict told_verdict(const JobState& state, const proto::Failure& failure, double now, double quiet) {
  if (const auto missed = missed_replicas(state, failure); !missed.empty()) {
    return missed_verdict(state, failure, missed, now, quiet);
  }
  Verdict verdict;
  verdict.exit_code = static_cast<int>(failure.exit_code());
  verdict.first_line = failure.message().substr(0, failure.message().find('\n'));
  verdict.more = lines_after_first(failure.message());
  if (failure.instance() < state.instances().size() && !blames_the_request(failure.exit_code())) {
    verdict.instance = failure.instance();
    verdict.first_line = fmt::format("{} {}: {}", describe(state, failure.instance()),
                                     where(state, failure.instance(), now), verdict.first_line);
    append(verdict.more, last_calls(failure, kCallsShown));
  }
  return failure.address().empty() ? verdict : unless_network(state, std::move(verdict), /*accused_live=*/true, now);
}

std::string problem_of(const StartFailure& failure) {
  return failure.lacks.empty()
             ? fmt::format("no replica could be started on host {}: {}", failure.node, failure.problem)
             : fmt::format("host {} has no executable {}; install the same poprun-emu at the same path on every host",
                           failure.node, failure.lacks);
}

Verdict noticed_verdict(const JobState& state, const RankEnd& end, double now, double quiet) {
  const auto said = std::ranges::find(state.failures(), end.rank, &proto::Failure::instance);
  if (said != state.failures().end()) {
    return told_verdict(state, *said, now, quiet);
  }
  Verdict verdict;
  verdict.instance = end.rank;
  verdict.exit_code = end.exit_code == 0 ? kInfrastructure : end.exit_code;
  const bool lost_us = end.exit_code == kInfrastructure && state.instances()[end.rank].joined;
  verdict.first_line =
      fmt::format("{} {} {}{}", describe(state, end.rank), exit_text(W_EXITCODE(end.exit_code, end.signal)),
                  where(state, end.rank, now), lost_us ? "; it could no longer reach poprun-emu" : "");
  verdict.more = meanwhile(state, std::span(&end.rank, 1), now);
  return lost_us ? unless_network(state, std::move(verdict), /*accused_live=*/true, now) : verdict;
}

Verdict lost_node_verdict(const JobState& state, const std::string& node, double now, double quiet) {
  std::vector<std::uint32_t> instances;
  double last_sign = 0;
  for (std::uint32_t i = 0; i < state.instances().size(); ++i) {
    const InstanceView& instance = state.instances()[i];
    if (same_host(state.placement().host_of(i), node) || same_host(instance.host, node)) {
      instances.push_back(i);
      last_sign = std::max(last_sign, instance.last_sign);
    }
  }
  if (instances.empty()) {
    return {kInfrastructure, fmt::format("mpirun lost the connection to host {}", node), meanwhile(state, {}, now)};
  }
  const std::vector<std::uint32_t> replicas = replicas_of(state, instances);
  const bool live = still_beats(state, replicas, now, quiet);
  const bool hardly_reached = live && !state.losses().found(now).empty();
  Verdict verdict{
      kInfrastructure,
      fmt::format("host {} (replica{} {}) {}: mpirun lost the connection to it; its last heartbeat came {:.1f} s ago",
                  node, replicas.size() == 1 ? "" : "s", number_ranges(replicas),
                  hardly_reached ? "is cut off from mpirun" : "is down or cut off", now - last_sign),
      {},
      instances.front()};
  for (const std::string& did : what_they_did(state, replicas, now)) {
    verdict.more.push_back("  there " + did);
  }
  append(verdict.more, meanwhile(state, instances, now));
  return unless_network(state, std::move(verdict), live, now);
}

std::vector<std::uint32_t> absent_instances(const JobState& state) {
  std::vector<std::uint32_t> absent;
  for (std::uint32_t i = 0; i < state.instances().size(); ++i) {
    if (!state.instances()[i].joined) {
      absent.push_back(i);
    }
  }
  return absent;
}

/// Blames lost instances. If mpirun notices that an instance is lost, even one that had not joined, it ends all others.
Verdict lost_verdict(const JobState& state, std::uint32_t first, double now) {
  std::vector<std::uint32_t> lost;
  for (std::uint32_t i = 0; i < state.instances().size(); ++i) {
    if (state.instances()[i].lost) {
      lost.push_back(i);
    }
  }
  Verdict verdict{kInfrastructure, "", meanwhile(state, lost, now), first};
  verdict.first_line = lost.size() == 1 ? fmt::format("{} died {}: the heartbeat connection broke",
                                                      describe(state, first), where(state, first, now))
                                        : fmt::format("the heartbeat connections of {} broke, first that of {}, {}",
                                                      describe_replicas(state, replicas_of(state, lost)),
                                                      describe(state, first), where(state, first, now));
  if (const std::vector<std::uint32_t> absent = absent_instances(state); !absent.empty()) {
    verdict.first_line += fmt::format("; {} had not joined", describe_replicas(state, replicas_of(state, absent)));
  }
  return unless_network(state, std::move(verdict), /*accused_live=*/true, now);
}

}  // namespace

void append(std::vector<std::string>& lines, std::vector<std::string> more) {
  lines.insert(lines.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

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

std::optional<Verdict> name_cause(const JobState& state, double now, double quiet) {
  const MpirunFindings& mpirun = state.mpirun();
  const auto cause = std::ranges::find_if(state.failures(), is_cause);
  if (cause != state.failures().end()) {
    return told_verdict(state, *cause, now, quiet);
  }
  if (mpirun.start_failure && (!mpirun.start_failure->no_daemon || lacks_daemon(state))) {
    return Verdict{exit_code_of(ErrorCode::kUnreachable), problem_of(*mpirun.start_failure)};
  }
  if (mpirun.rank_end && mpirun.rank_end->rank < state.instances().size()) {
    return noticed_verdict(state, *mpirun.rank_end, now, quiet);
  }
  if (mpirun.lost_node) {
    return lost_node_verdict(state, *mpirun.lost_node, now, quiet);
  }
  if (state.first_lost()) {
    // If a host is cut off, mpirun ends the replicas on all other hosts.
    const auto silent = state.silent(now, quiet);
    return silent.empty() ? lost_verdict(state, *state.first_lost(), now) : silence_verdict(state, silent, now);
  }
  if (!state.failures().empty()) {
    return told_verdict(state, state.failures().front(), now, quiet);
  }
  return std::nullopt;
}

bool lacks_daemon(const JobState& state) {
  const std::optional<StartFailure>& failure = state.mpirun().start_failure;
  return failure && failure->no_daemon && std::ranges::none_of(state.instances(), &InstanceView::joined);
}

std::vector<std::string> hosts_to_ask(const JobState& state, const MpirunNotices& notices) {
  const Placement& placement = state.placement();
  std::vector<std::string> asked;
  for (std::size_t h = 0; h < placement.hosts.size(); ++h) {
    const bool may_be_down = lacks_daemon(state) ? same_host(state.mpirun().start_failure->node, placement.hosts[h])
                                                 : notices.misses_a_daemon();
    if (may_be_down && !placement.is_local[h] && placement.slurm_job.empty()) {
      asked.push_back(placement.hosts[h]);
    }
  }
  return asked;
}

std::vector<std::string> lost_hosts(const JobState& state, double now, double quiet) {
  const MpirunFindings& mpirun = state.mpirun();
  std::vector<std::string> lost;
  const Placement& placement = state.placement();
  for (std::size_t h = 0; h < placement.hosts.size(); ++h) {
    const std::string& host = placement.hosts[h];
    const bool named = (mpirun.lost_node && same_host(*mpirun.lost_node, host)) ||
                       (mpirun.start_failure && same_host(mpirun.start_failure->node, host)) ||
                       std::ranges::count(state.silent_hosts(), host) > 0;
    bool silent = true;
    for (std::uint32_t i = 0; i < state.instances().size(); ++i) {
      const InstanceView& instance = state.instances()[i];
      const bool is_silent =
          instance.overdue || (instance.joined && !instance.left && now - instance.last_sign >= quiet / 2);
      silent = silent && (placement.instance_host[i] != h || is_silent);
    }
    if ((named || silent) && !placement.is_local[h]) {
      lost.push_back(host);
    }
  }
  return lost.size() < placement.hosts.size() ? lost : std::vector<std::string>{};
}

Verdict silence_verdict(const JobState& state, std::span<const std::uint32_t> instances, double now) {
  const std::uint32_t longest =
      *std::ranges::min_element(instances, {}, [&](std::uint32_t i) { return state.instances()[i].last_sign; });
  const std::vector<std::uint32_t> replicas = replicas_of(state, instances);
  const bool one = instances.size() == 1;
  const InstanceView& view = state.instances()[longest];
  const auto behind = std::ranges::min_element(view.replicas, {}, &ReplicaView::step);
  Verdict verdict{
      kInfrastructure,
      fmt::format("{} sent no heartbeat for {:.1f} s, since step {}{}; {}", describe_replicas(state, replicas),
                  now - view.last_sign, behind->step,
                  behind->activity.empty() ? "" : fmt::format(" ({})", behind->activity),
                  are_whole_hosts(state, replicas) ? "is it down or cut off?"
                                                   : fmt::format("{} stopped, or is {} host down or cut off?",
                                                                 one ? "is it" : "are they", one ? "its" : "their")),
      meanwhile(state, instances, now), longest};
  return unless_network(state, std::move(verdict), /*accused_live=*/false, now);
}

Verdict absence_verdict(const JobState& state, double waited_seconds, std::string_view launcher) {
  const std::vector<std::uint32_t> absent = absent_instances(state);
  POPRUN_CHECK(!absent.empty());
  const std::uint32_t first = absent.front();
  Verdict verdict{kInfrastructure,
                  fmt::format("{} did not join within {:.0f} s", describe_replicas(state, replicas_of(state, absent)),
                              waited_seconds),
                  {},
                  first};
  if (!state.placement().runs_here(first)) {
    // mpirun may reach the host nevertheless: mpirun's messages are few and small, and its daemons need no certificate.
    verdict.first_line += fmt::format(
        "; mpirun reached host {0}, but the replica there did not reach poprun-emu at {1}: check that the network "
        "between them lets the connection through (firewall) and carries full-size packets "
        "(MTU: `ping -M do -s 1472 {0}`), that the host's clock is right, and that its certificates match",
        state.placement().host_of(first), launcher);
  }
  return verdict;
}

Verdict timeout_verdict(const JobState& state, double limit_seconds, std::string_view how_far, double now) {
  return {kInfrastructure,
          fmt::format("the job is not finished after {} s, the limit of --timeout; it {}", limit_seconds, how_far),
          meanwhile(state, {}, now)};
}

Verdict mpirun_verdict(const JobState& state, int status, const MpirunNotices& notices, const std::string& logs) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !lacks_daemon(state)) {
    return {kInfrastructure, "all instances ended without reporting their results; see " + logs};
  }
  const std::string ended = "mpirun " + exit_text(status);
  const std::string essential = notices.essential();
  if (std::ranges::none_of(state.instances(), &InstanceView::joined)) {
    const ErrorCode code = notices.refuses_arguments() ? ErrorCode::kUsage
                           : WIFSIGNALED(status)       ? ErrorCode::kInfrastructure
                                                       : ErrorCode::kUnreachable;
    const std::string reason = essential.empty() ? ended : essential;
    const std::string said =
        lacks_daemon(state) ? problem_of(*state.mpirun().start_failure) : "no replica could be started: " + reason;
    const std::span<const std::string> silent = state.silent_hosts();
    return {exit_code_of(code),
            silent.empty() ? said
                           : fmt::format("no replica could be started: {} {} not answer; {} down or cut off? ({})",
                                         fmt::join(silent, ", "), silent.size() == 1 ? "does" : "do",
                                         silent.size() == 1 ? "is it" : "are they",
                                         lacks_daemon(state) ? state.mpirun().start_failure->problem : reason)};
  }
  return {is_infrastructure(status) ? kInfrastructure : WEXITSTATUS(status),
          fmt::format("{} at step {} or later{}{}", ended, state.step(), essential.empty() ? "" : ": ", essential)};
}

Verdict unless_settings(const JobState& state, Verdict verdict, std::span<const std::string> named) {
  if (named.empty() || state.step() > 0 || !state.failures().empty() || lacks_daemon(state)) {
    return verdict;
  }
  verdict.first_line = fmt::format(
      "Open MPI did not start, and the environment selects components of Open MPI that may not work here; `unset {}` "
      "and try again ({})",
      fmt::join(named, " "), verdict.first_line);
  verdict.exit_code = exit_code_of(ErrorCode::kHostResources);
  return verdict;
}

}  // namespace poprun::launcher
