#pragma once

#include <string>
#include <vector>

#include "launcher/verdict/job_state.h"
#include "launcher/verdict/post_mortem.h"
#include "proto/coordinator.pb.h"

namespace poprun::launcher {

/// Returns the text of failure.txt: the verdict, what each replica did and since when, lost packets, and what instances
/// said before they left, with their last collectives.
std::string failure_report(const JobState& state, const Verdict& verdict, double now);

}  // namespace poprun::launcher
