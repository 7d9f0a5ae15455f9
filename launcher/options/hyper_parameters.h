#pragma once

#include <vector>

#include "launcher/options/option_table.h"

/// The options of optimisers, from what these declare (replica/ops/optimizers).
namespace poprun::launcher {

/// A row training.NAME for every hyper-parameter there is.
std::vector<OptionRow> hyper_parameter_rows();

/// Leaves in the configuration what its optimiser has, with the optimiser's own defaults where
/// nobody gave a value. Notes a number that was given for another optimiser.
///
/// Requires: all rows are set, and options.settings tell by whom.
/// Errors: kUsage, a flag that is true and the optimiser does not have.
Status resolve_hyper_parameters(Options& options);

}  // namespace poprun::launcher
