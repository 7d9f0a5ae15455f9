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

/// The first cause among what is known: an instance's own reason, else what mpirun noticed, else
/// who is silent for `quiet` seconds while others' heartbeats break off, else these, else the peers
/// that were missed. Nothing while there is no trouble.
std::optional<Verdict> name_cause(const JobState& state, double now, double quiet);

/// Over instances that are there and give no heartbeats. Requires: there are some.
Verdict silence_verdict(const JobState& state, std::span<const std::uint32_t> instances,
                        double now);

/// Over the instances that never joined. Requires: there are some.
Verdict absence_verdict(const JobState& state, double waited_seconds);

/// Over a job that took longer than the `limit_seconds` that it may.
Verdict timeout_verdict(const JobState& state, double limit_seconds, std::uint64_t total_steps,
                        double now);

/// Over the end of mpirun where nobody told more. `status` is that of waitpid, `notices` what
/// mpirun said, `logs` where the replicas' are.
Verdict mpirun_verdict(const JobState& state, int status, const MpirunNotices& notices,
                       const std::string& logs);

/// `replica 5 (instance 5, host node1, pid 4711)`.
std::string describe(const JobState& state, std::uint32_t instance);

/// What the replicas of all instances but some did: a line for each group of them at the same step
/// and activity.
std::vector<std::string> meanwhile(const JobState& state, std::span<const std::uint32_t> except,
                                   double now);

/// All that is known, for a file: the verdict, what each replica did and since when, and what
/// instances said before they left, with their last collectives.
std::string failure_report(const JobState& state, const Verdict& verdict, double now);

/// `0-4, 6` from rising numbers.
std::string number_ranges(std::span<const std::uint32_t> numbers);

}  // namespace poprun::launcher
