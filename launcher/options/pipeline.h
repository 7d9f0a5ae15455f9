#pragma once

#include <vector>

#include "launcher/options/option_table.h"

/// Section [pipeline]: how a model is spread over the IPUs of a replica.
namespace poprun::launcher {

std::vector<OptionRow> pipeline_rows();

/// `memory.phases` and `memory.phase-ipus`: stages that take turns.
std::vector<OptionRow> phase_rows();

/// Checks the keys of both against each other and against --ipus-per-replica, as far as that
/// needs no model. Notes keys that have no effect.
///
/// Requires: all rows have their values.
/// Errors: kUsage, names the keys and the remedy.
Status check_pipeline(Options& options);

}  // namespace poprun::launcher
