#pragma once

#include <string>
#include <vector>

#include "launcher/options/option_table.h"
#include "launcher/options/options.h"
#include "replica/base/error.h"

/// Groups of keys that have their own rules. For each group, one function returns the rows, for job_rows.cc, and
/// another checks their values, for check_together. Every check requires that all rows already have their values.
namespace poprun::launcher {

// The hyper-parameters of optimisers. Their rows are derived from what the optimisers declare (replica/ops/optimizers).

/// Returns one row training.NAME for each hyper-parameter that any optimiser has.
Rows hyper_parameter_rows();

/// Keeps only the hyper-parameters of the configured optimiser, and sets those that the user did not set to the
/// defaults. Adds a note if the user set a number that only other optimisers use. Requires: options.settings records
/// the origins of all rows. Errors: kUsage if a flag is set that the optimiser does not have.
Status resolve_hyper_parameters(Options& options);

// Where a job's tensors are kept, and which of them are sharded across the replicas. `memory.weights`,
// `memory.optimizer-state`, `memory.accumulators` and `memory.activations` set the location of a kind of tensor, and
// `memory.location` sets it for named tensors. Names and defaults are those of PopART's TensorLocationSettings.

Rows location_rows();

/// Checks that the requested sharding is possible. Errors: kUsage if it is not; the message gives the remedy.
Status check_locations(Options& options);

/// Returns whether a step accumulates gradients over several micro-batches, or over several compute batches of a
/// micro-batch.
bool accumulates(const proto::RunConfig& config);

// Section [pipeline]: how a model is spread across the IPUs of a replica.

Rows pipeline_rows();

/// Returns the rows of `memory.phases` and `memory.phase-ipus`. Phases are stages that take turns on the IPUs.
Rows phase_rows();

/// Checks the keys of [pipeline] and the phases against each other and against --ipus-per-replica, as far as possible
/// without the model. Adds notes on ineffective keys. Errors: kUsage; the message names the keys and the remedy.
Status check_pipeline(Options& options);

// Settings of a job's convolutions and matmuls: `memory.available-memory-proportion` and `model.partials`, each of
// which also exists with the suffix `-operators` for operators selected by name. All use the same grammar:
//
//   0.6                  everywhere
//   0.15 0.25 0.25       one value for each IPU
//   0.6 matmuls=0.4      a value, and more specific settings PLACE=X, KIND=X or PLACE.KIND=X;
//                        KIND is convolutions or matmuls, PLACE an IPU or a stage: ipu1, stage2
//   REGEX=0.1            for the key with -operators; several are separated by spaces
//
// replica/compiler/planner/product_options.h says which of these settings applies to an operator.

Rows memory_proportion_rows();
Rows partials_rows();

/// Returns the rows of `model.embedding-serialisation-factor`, `model.serialised-matmuls` and
/// `model.serialised-sequence`. The latter two have the syntax of the keys with -operators.
Rows serialisation_rows();

/// Checks the memory proportions and the partials against --ipus-per-replica, model.precision and the subcommand. Adds
/// notes on settings that have no effect and on proportions below the recommended minimum. Errors: kUsage; the message
/// names the key, the value and the remedy.
Status check_products(Options& options);

// The Pod of the device clock, where it differs from the replicas that run (--real, --what-if).

/// Divides --num-replicas into the replicas that run and those that only the device clock counts, if --real is given.
/// Errors: kUsage if the command runs no job, or if --real is larger.
Status resolve_real(Options& options);

/// Checks that the job has what --what-if disturbs, and completes losses with the heartbeat timeout and the interval of
/// checkpoints. Requires: resolve_real. Errors: kUsage; the message names the place and the remedy.
Status resolve_what_if(Options& options);

/// Errors: kUsage unless the options start or plan a training job, which `option` needs.
Status check_trains(const Options& options, const std::string& option);

/// Checks that the job can replay steps and has the replicas whose bits are flipped (--replay-every, --flip-bit).
/// Requires: resolve_real. Errors: kUsage; the message gives the remedy.
Status check_corruption(const Options& options);

bool is_half(const Options& options);

/// Checks and completes the options of subcommands. Errors: kUsage if they contradict each other or the job.
Status check_subcommand_rules(Options& options);

/// Checks options that exclude or require each other, derives values that follow from other options, and adds notes on
/// options that have no effect. Returns a message for each rule that is violated; it names the options.
std::vector<std::string> check_together(Options& options);

}  // namespace poprun::launcher
