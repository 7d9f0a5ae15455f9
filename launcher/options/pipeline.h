#pragma once

#include <vector>

#include "launcher/options/option_table.h"

/// Section [pipeline]: how a model is spread across the IPUs of a replica.
namespace poprun::launcher {

std::vector<OptionRow> pipeline_rows();

/// Returns the rows of `memory.phases` and `memory.phase-ipus`: stages that take turns on the IPUs.
std::vector<OptionRow> phase_rows();

/// Checks the keys of both sections against each other and against --ipus-per-replica, as far as possible without the
/// model. Adds notes on keys without effect.
///
/// Requires: all rows have their values.
/// Errors: kUsage, names the keys and the remedy.
Status check_pipeline(Options& options);

}  // namespace poprun::launcher
