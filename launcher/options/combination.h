#pragma once

#include "launcher/options/options.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// Checks and resolves what no single row can see: options that exclude or need each other, values that follow from
/// others, and notes on options without effect.
///
/// Requires: all rows have their values.
/// Errors: kUsage, names the options.
Status check_together(Options& options);

}  // namespace poprun::launcher
