#pragma once

#include <string_view>
#include <vector>

#include "replica/compiler/job/pass.h"

namespace poprun {

/// Returns all passes in order. After "precision" the arithmetic is settled: later passes may move work, but must not
/// change a bit of a result, so `verify_equivalence` compares the graph after each with that after "precision".
const std::vector<Pass>& all_passes();

/// Text after the name of a pass in a note that the pass is left out.
inline constexpr std::string_view kLeftOut = "is left out, because its proof failed";

inline constexpr std::string_view kLastOfArithmetic = "precision";

/// Runs a pass on a job. Then shows the job to `observer`, and runs `verify_operations`, the pass's verifier and, if
/// `plain` is not null, `verify_equivalence` with this graph. Errors: those of run_passes.
Status run_pass(const Pass& pass, const CompileOptions& options, const CompileObserver& observer, const Graph* plain,
                Job& job);

/// Runs the passes that apply to `options` on an empty job, each with `run_pass`; if `last` is given, only up to it.
/// With options.leaves_out_unproven, the job continues without an optional pass that ends with kBug. Errors: kUsage
/// from a pass; kBug, with the name of the pass, if a verifier rejects a pass.
Result<Job> run_passes(const CompileOptions& options, std::string_view last = {}, const CompileObserver& observer = {});

/// Checks what must hold between any two passes: besides `verify_graph`, that operations exist, take their operands and
/// give outputs of the declared types (float16 counts as float32). Errors: kBug, with the operation.
Status verify_operations(const Graph& graph);

}  // namespace poprun
