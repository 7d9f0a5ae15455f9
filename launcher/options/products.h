#pragma once

#include <vector>

#include "launcher/options/option_table.h"

/// What a job asks of its convolutions and matmuls: `memory.available-memory-proportion`,
/// `model.partials`, and either with `-operators` for operators by name. Both have one grammar:
///
///   0.6                  everywhere
///   0.15 0.25 0.25       by IPU
///   0.6 matmuls=0.4      a value, and narrower settings PLACE=X, KIND=X or PLACE.KIND=X; KIND is
///                        convolutions or matmuls, PLACE an IPU or a stage: ipu1, stage2
///   REGEX=0.1            of the key for operators; several are separated by blanks, too
///
/// replica/compiler/planner/product_options.h says which setting decides for a product.
namespace poprun::launcher {

std::vector<OptionRow> memory_proportion_rows();
std::vector<OptionRow> partials_rows();

/// `model.embedding-serialisation-factor` and `model.serialised-matmuls`, whose grammar is that of
/// a key for operators.
std::vector<OptionRow> serialisation_rows();

/// Checks both against --ipus-per-replica, model.precision and the subcommand. Notes what has no
/// effect, and proportions below the advised least.
///
/// Requires: all rows have their values.
/// Errors: kUsage, names key, value and remedy.
Status check_products(Options& options);

}  // namespace poprun::launcher
