#pragma once

#include <string_view>
#include <vector>

#include "replica/compiler/job/pass.h"

namespace poprun {

/// Every pass, in the order in which they run. After "precision" the arithmetic is settled: later passes may move work,
/// and change no bit of a result. `verify_equivalence` with the graph as it was then runs after each of them.
const std::vector<Pass>& all_passes();

/// The text after the name of a pass that is left out, in its note.
inline constexpr std::string_view kLeftOut = "is left out, because its proof failed";

/// Runs the passes that apply to `options` on an empty job, each with its verifier and `verify_operations` after it,
/// and shows the graph to `observer`. With `last`, those up to the pass of that name.
///
/// With options.leaves_out_unproven, the job goes on without an optional pass that ends with kBug.
///
/// Errors: kUsage from a pass; kBug, a verifier refused what a pass made: names the pass.
Result<Job> run_passes(const CompileOptions& options, std::string_view last = {}, const CompileObserver& observer = {});

/// Checks what must hold between any two passes: `verify_graph`, operations that exist, operands that they can take,
/// and outputs of the types that they give, where float16 stands for float32. Errors: kBug, names the operation.
Status verify_operations(const Graph& graph);

}  // namespace poprun
