#pragma once

#include "launcher/options/option_table.h"
#include "launcher/options/options.h"
#include "replica/base/error.h"

/// Groups of keys with rules of their own. Each group has a function that returns its rows, for job_rows.cc, and a
/// function that checks their values, for check_together. Every check requires that all rows have their values.
namespace poprun::launcher {

// The hyper-parameters of optimisers, derived from what the optimisers declare (replica/ops/optimizers).

/// Returns one row training.NAME per hyper-parameter of any optimiser.
Rows hyper_parameter_rows();

/// Reduces the configuration to its optimiser's hyper-parameters, with the optimiser's own defaults for those left out.
/// Notes a number that only other optimisers use. Requires: options.settings record the origins of all rows. Errors:
/// kUsage if a flag that the optimiser does not have is true.
Status resolve_hyper_parameters(Options& options);

// Locations of a job's tensors (`memory.weights`, `memory.optimizer-state`, `memory.accumulators`,
// `memory.activations`, and `memory.location` for tensors by name), and which tensors are sharded across the replicas.
// Names and defaults are those of PopART's TensorLocationSettings.

Rows location_rows();

/// Checks that sharding is possible. Errors: kUsage, with the remedy.
Status check_locations(Options& options);

/// Returns whether a step accumulates gradients: over several micro-batches, or over their compute batches.
bool accumulates(const proto::RunConfig& config);

// Section [pipeline]: how a model is spread across the IPUs of a replica.

Rows pipeline_rows();

/// Returns the rows of `memory.phases` and `memory.phase-ipus`: stages that take turns on the IPUs.
Rows phase_rows();

/// Checks the keys of [pipeline] and the phases against each other and against --ipus-per-replica, as far as possible
/// without the model. Notes keys without effect. Errors: kUsage; the message names the keys and the remedy.
Status check_pipeline(Options& options);

// Settings of a job's convolutions and matmuls: `memory.available-memory-proportion` and `model.partials`, each also
// with the suffix `-operators` for operators by name. Both use the same grammar:
//
//   0.6                  everywhere
//   0.15 0.25 0.25       by IPU
//   0.6 matmuls=0.4      a value, and more specific settings PLACE=X, KIND=X or PLACE.KIND=X;
//                        KIND is convolutions or matmuls, PLACE an IPU or a stage: ipu1, stage2
//   REGEX=0.1            for the key with -operators; several are separated by spaces
//
// replica/compiler/planner/product_options.h says which setting applies to an operator.

Rows memory_proportion_rows();
Rows partials_rows();

/// Returns the rows of `model.embedding-serialisation-factor` and `model.serialised-matmuls` (in -operators syntax).
Rows serialisation_rows();

/// Checks both settings against --ipus-per-replica, model.precision and the subcommand. Notes settings without effect,
/// and proportions below the recommended minimum. Errors: kUsage; the message names the key, the value and the remedy.
Status check_products(Options& options);

bool is_half(const Options& options);

/// Checks and resolves options against each other: those that exclude or need each other, values that follow from other
/// options, and notes on options without effect. Errors: kUsage; the message names the options.
Status check_together(Options& options);

}  // namespace poprun::launcher
