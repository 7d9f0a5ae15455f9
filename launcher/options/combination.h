#pragma once

#include "launcher/options/options.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// Checks and resolves options against each other: those that exclude or need each other, values that follow from other
/// options, and notes on options without effect.
///
/// Requires: all rows have their values.
/// Errors: kUsage, names the options.
Status check_together(Options& options);

}  // namespace poprun::launcher
