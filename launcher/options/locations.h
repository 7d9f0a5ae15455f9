#pragma once

#include <vector>

#include "launcher/options/option_table.h"

/// Where a job keeps its tensors: `memory.weights`, `memory.optimizer-state`,
/// `memory.accumulators`, `memory.activations`, `memory.location` for tensors by name; and what of
/// them is divided among the replicas. Names and defaults are those of PopART's
/// TensorLocationSettings.
namespace poprun::launcher {

std::vector<OptionRow> location_rows();

/// Requires: all rows have their values. Errors: kUsage, shards that cannot be, with the remedy.
Status check_locations(Options& options);

/// Whether a step accumulates gradients: of several micro-batches, or of their compute batches.
bool accumulates(const proto::RunConfig& config);

}  // namespace poprun::launcher
