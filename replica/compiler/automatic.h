#pragma once

#include <cstddef>

#include "replica/base/error.h"
#include "replica/compiler/job/pass.h"
#include "replica/program/program.h"

namespace poprun {

/// Maximum number of balanced splits to compile in search of one that fits.
inline constexpr std::size_t kSplitsMax = 6;

/// Compiles the job. Until it fits, settles the options that are left open, in this order:
///
///   balanced stages  are rebalanced according to their measured memory
///   Outlining::kAuto becomes kOn
///   Storage::kAuto   becomes kOffChip for optimiser state, then for weights, accumulators and stashes
///
/// Stages are rebalanced after each of the other choices. Notes in the Program report the choices made. The Program may
/// still need more memory than an IPU has. `observer` can end the settling early; it sees the passes of the first
/// compilation and, if a different compilation is chosen, also its passes. Deterministic. Errors: those of
/// `compile_settled`.
Result<Program> plan_program(const CompileOptions& options, const CompileObserver& observer = {});

}  // namespace poprun
