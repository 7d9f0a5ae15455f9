#pragma once

#include <string_view>
#include <vector>

#include "replica/compiler/job/pass.h"

namespace poprun {

/// Returns all passes, in the order in which they run. After "precision" the arithmetic is settled: later passes may
/// move work, but must not change a bit of a result, so `verify_equivalence` compares the graph after each of them with
/// the graph after "precision".
const std::vector<Pass>& all_passes();

/// Text after the name of a pass in the note that it is left out.
inline constexpr std::string_view kLeftOut = "is left out, because its proof failed";

/// Runs the passes that apply to `options` on an empty job, or only those up to the pass `last`. After each pass, shows
/// the graph to `observer` and runs `verify_operations` and the pass's verifier.
///
/// With options.leaves_out_unproven, the job continues without an optional pass that ends with kBug.
///
/// Errors: kUsage from a pass; kBug if a verifier rejects a pass; names the pass.
Result<Job> run_passes(const CompileOptions& options, std::string_view last = {}, const CompileObserver& observer = {});

/// Checks what must hold between any two passes: besides `verify_graph`, that operations exist, take their operands and
/// give outputs of the declared types (float16 counts as float32). Errors: kBug; names the operation.
Status verify_operations(const Graph& graph);

}  // namespace poprun
