#pragma once

#include <vector>

#include "launcher/options/option_table.h"

/// The options of optimisers, derived from what the optimisers declare (replica/ops/optimizers).
namespace poprun::launcher {

/// Returns one row training.NAME per hyper-parameter of any optimiser.
std::vector<OptionRow> hyper_parameter_rows();

/// Reduces the configuration to the hyper-parameters of its optimiser, with the optimiser's own defaults for those that
/// the user left out. Adds a note if a number is for another optimiser.
///
/// Requires: all rows are set, and options.settings record their origins.
/// Errors: kUsage if a flag that the optimiser does not have is true.
Status resolve_hyper_parameters(Options& options);

}  // namespace poprun::launcher
