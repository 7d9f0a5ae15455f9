#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/mpi/tagged_lines.h"
#include "launcher/verdict/job_state.h"
#include "proto/coordinator.pb.h"

/// Pure functions that find the instance to blame and explain the failure in words.
namespace poprun::launcher {

/// The diagnosis of a failed job: the exit code, the first line, and the lines that follow it.
struct Verdict {
  int exit_code = 0;
  std::string first_line;
  std::vector<std::string> more = {};
  std::optional<std::uint32_t> instance = {};  ///< The instance to blame.
};

/// Returns the root cause as far as it is known, or nothing if there is no trouble. Definite causes come first:
///
///   a reason given by an instance · a start that failed, as reported by mpirun · the end of a rank, noticed by mpirun
///
/// The following causes come next, since they may be consequences of others. If packets are being lost and the accused
/// instances are still sending heartbeats, the verdict blames the network instead:
///
///   a host that mpirun lost · an instance that is silent for `quiet` seconds while others' heartbeats break off ·
///   the instances whose heartbeats broke off · a replica's missing peers, unless they wait in the same exchange
std::optional<Verdict> name_cause(const JobState& state, double now, double quiet);

/// Returns whether a host's remote shell failed to start Open MPI's daemon, or broke off before any instance had
/// joined, so that the job cannot start. Once an instance has joined, all daemons are running, and later messages from
/// the shells only report that they have ended.
bool lacks_daemon(const JobState& state);

/// Returns the remote hosts, spelled as given, whose daemon did not start, if the reason is unknown. They may be why
/// mpirun started nothing. Returns none in a Slurm job, where hosts need not accept connections to their ssh port.
std::vector<std::string> hosts_to_ask(const JobState& state, const MpirunNotices& notices);

/// Returns the hosts, spelled as given, that are down or cut off: mpirun cannot reach them, they do not answer, or all
/// their instances are overdue or have been silent for at least `quiet` / 2 seconds. Never returns this machine;
/// returns none if all qualify.
std::vector<std::string> lost_hosts(const JobState& state, double now, double quiet);

/// Returns the verdict on joined instances that stopped sending heartbeats. Requires: at least one instance.
Verdict silence_verdict(const JobState& state, std::span<const std::uint32_t> instances, double now);

/// Returns the verdict on instances that did not join in time. They should have reached us at the address `launcher`.
/// Requires: at least one such instance.
Verdict absence_verdict(const JobState& state, double waited_seconds, std::string_view launcher);

/// Returns the verdict on a job that reached --timeout. `how_far` is its progress, such as "was at step 3 of 10".
Verdict timeout_verdict(const JobState& state, double limit_seconds, std::string_view how_far, double now);

/// Returns the verdict to give if nothing else explains why mpirun ended. `status` is from waitpid. The replicas' logs
/// are in the folder `logs`.
Verdict mpirun_verdict(const JobState& state, int status, const MpirunNotices& notices, const std::string& logs);

/// Returns `verdict`, amended to blame the environment variables in `named` if there are any, no step was completed, no
/// instance gave a reason, and no daemon is missing (lacks_daemon). These variables select components of Open MPI, so a
/// restart would not help.
Verdict unless_settings(const JobState& state, Verdict verdict, std::span<const std::string> named);

void append(std::vector<std::string>& lines, std::vector<std::string> more);

/// Returns the last `count` exchanges of the replica that failed, below a heading.
std::vector<std::string> last_calls(const proto::Failure& failure, int count);

/// Returns the text of failure.txt: the verdict, each replica's last activity and when it began, lost packets, and the
/// messages that instances sent before they left, with their last collectives.
std::string failure_report(const JobState& state, const Verdict& verdict, double now);

}  // namespace poprun::launcher
