#pragma once

#include <vector>

#include "launcher/options/option_table.h"

/// Settings of a job's convolutions and matmuls: `memory.available-memory-proportion` and `model.partials`, each also
/// with the suffix `-operators` for operators by name. Both have one grammar:
///
///   0.6                  everywhere
///   0.15 0.25 0.25       by IPU
///   0.6 matmuls=0.4      a value, and more specific settings PLACE=X, KIND=X or PLACE.KIND=X;
///                        KIND is convolutions or matmuls, PLACE an IPU or a stage: ipu1, stage2
///   REGEX=0.1            for the key with -operators; several are separated by blanks
///
/// replica/compiler/planner/product_options.h says which setting applies to an operator.
namespace poprun::launcher {

std::vector<OptionRow> memory_proportion_rows();
std::vector<OptionRow> partials_rows();

/// Returns the rows of `model.embedding-serialisation-factor` and `model.serialised-matmuls`; the latter has the
/// grammar of a key with -operators.
std::vector<OptionRow> serialisation_rows();

/// Checks both against --ipus-per-replica, model.precision and the subcommand. Adds notes on settings without effect,
/// and on proportions below the recommended minimum.
///
/// Requires: all rows have their values.
/// Errors: kUsage, names key, value and remedy.
Status check_products(Options& options);

}  // namespace poprun::launcher
