#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/mpi/tagged_lines.h"
#include "launcher/verdict/job_state.h"

/// Who is to blame, in words. Pure functions of what the launcher knows.
namespace poprun::launcher {

/// Why a job ends badly: the code, the first line, and what to say after it.
struct Verdict {
  int exit_code = 0;
  std::string first_line;
  std::vector<std::string> more = {};
  std::optional<std::uint32_t> instance = {};  ///< The one to blame.
};

/// The first cause among what is known; nothing while there is no trouble. First what is certain:
///
///   an instance's own reason · what mpirun could not start · the rank whose end mpirun noticed
///
/// then what may be the work of others. Each of these names the network instead where packets are
/// lost on it, and the accused still beat:
///
///   a host that mpirun lost · who is silent for `quiet` seconds while others' heartbeats break off
///   · these · the peers that were missed, unless they wait in the same exchange themselves
std::optional<Verdict> name_cause(const JobState& state, double now, double quiet);

/// Whether a host's remote shell did not reach Open MPI's daemon, so that nothing starts. Once an
/// instance has joined all daemons are there, and what shells say then is only their end.
bool lacks_daemon(const JobState& state);

/// The hosts, as they were given, that are down or cut off: those that mpirun cannot reach or that
/// do not answer, and those all of whose instances have been silent for half of `quiet` seconds or
/// more. This machine is never one, nor is any host where all would be.
std::vector<std::string> lost_hosts(const JobState& state, double now, double quiet);

/// Over instances that are there and give no heartbeats. Requires: there are some.
Verdict silence_verdict(const JobState& state, std::span<const std::uint32_t> instances,
                        double now);

/// Verdict on the instances that never joined. `launcher` is the address at which they should.
/// Requires: at least one.
Verdict absence_verdict(const JobState& state, double waited_seconds, std::string_view launcher);

/// Over a job that took longer than the `limit_seconds` that it may. `how_far` says what it did by
/// then: "was at step 3 of 10 at its last heartbeats".
Verdict timeout_verdict(const JobState& state, double limit_seconds, std::string_view how_far,
                        double now);

/// Over the end of mpirun where nobody told more. `status` is that of waitpid, `notices` what
/// mpirun said, `logs` where the replicas' are.
Verdict mpirun_verdict(const JobState& state, int status, const MpirunNotices& notices,
                       const std::string& logs);

/// `verdict` on a job that ended before its first step, if no instance gave a reason: blames the
/// variables of the environment that choose Open MPI's components, of which `named` are set.
/// Running it again does not help.
Verdict unless_settings(const JobState& state, Verdict verdict, std::span<const std::string> named);

/// Adds lines to others.
void append(std::vector<std::string>& lines, std::vector<std::string> more);

/// The last `count` things that the replica of a failure exchanged, below a line that says so.
std::vector<std::string> last_calls(const proto::Failure& failure, int count);

}  // namespace poprun::launcher
