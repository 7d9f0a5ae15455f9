#pragma once

#include <string>
#include <vector>

#include "launcher/verdict/job_state.h"
#include "launcher/verdict/post_mortem.h"
#include "proto/coordinator.pb.h"

namespace poprun::launcher {

/// All that is known, for a file: the verdict, what each replica did and since when, lost packets,
/// and what instances said before they left, with their last collectives.
std::string failure_report(const JobState& state, const Verdict& verdict, double now);

/// Adds lines to others.
void append(std::vector<std::string>& lines, std::vector<std::string> more);

/// The last `count` things that the replica of a failure exchanged, below a line that says so.
std::vector<std::string> last_calls(const proto::Failure& failure, int count);

}  // namespace poprun::launcher
