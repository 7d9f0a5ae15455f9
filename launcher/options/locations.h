#pragma once

#include <vector>

#include "launcher/options/option_table.h"

/// Options for where a job keeps its tensors (`memory.weights`, `memory.optimizer-state`, `memory.accumulators`,
/// `memory.activations`, and `memory.location` for tensors by name), and which of them it shards across the replicas.
/// Names and defaults are those of PopART's TensorLocationSettings.
namespace poprun::launcher {

std::vector<OptionRow> location_rows();

/// Checks that sharding is possible. Requires: all rows have their values. Errors: kUsage, with the remedy.
Status check_locations(Options& options);

/// Returns whether a step accumulates gradients: over several micro-batches, or over their compute batches.
bool accumulates(const proto::RunConfig& config);

}  // namespace poprun::launcher
