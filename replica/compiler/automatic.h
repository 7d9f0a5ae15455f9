#pragma once

#include <cstddef>

#include "replica/base/error.h"
#include "replica/compiler/job/pass.h"
#include "replica/program/program.h"

namespace poprun {

/// The largest number of balanced splits that are compiled in the search for one that fits.
inline constexpr std::size_t kSplitsMax = 6;

/// Compiles the job. Until it fits, settles what its options leave open, in this order:
///
///   balanced stages  are balanced again by their measured memory
///   Outlining::kAuto becomes kOn
///   Storage::kAuto   moves off-chip: optimiser state, then weights, accumulators and stashes
///
/// Stages are balanced again after each of the other choices. Notes in the Program say what was chosen. The Program may
/// still need more memory than an IPU has. `observer` sees the passes of the first compilation and, if a different one
/// is chosen, of that one as well. Deterministic. Errors: those of `compile_settled`.
Result<Program> plan_program(const CompileOptions& options, const CompileObserver& observer = {});

}  // namespace poprun
