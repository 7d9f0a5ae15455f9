#pragma once

#include "launcher/options/options.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// Checks and resolves what no row can see alone: options that exclude or need one another, values
/// that follow from others, and notes of what has no effect.
///
/// Requires: all rows have their values.
/// Errors: kUsage, names the options.
Status check_together(Options& options);

}  // namespace poprun::launcher
