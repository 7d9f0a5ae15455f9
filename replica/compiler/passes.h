#pragma once

#include <string_view>
#include <vector>

#include "replica/compiler/job/pass.h"

namespace poprun {

/// Returns all passes in order. Passes after "precision" may move work, but must not change any bit of a result, so
/// `verify_equivalence` compares the graph after each of them with the graph after "precision".
const std::vector<Pass>& all_passes();

/// The text that follows a pass's name in the note that the pass was left out.
inline constexpr std::string_view kLeftOut = "is left out because its proof failed";

inline constexpr std::string_view kLastOfArithmetic = "precision";

/// Runs a pass on a job. Then shows the job to `observer`, and runs `verify_operations`, the pass's verifier and, if
/// `plain` is not null, `verify_equivalence` against `plain`. Errors: those of run_passes.
Status run_pass(const Pass& pass, const CompileOptions& options, const CompileObserver& observer, const Graph* plain,
                Job& job);

/// Runs the passes that apply to `options` on an empty job, each with `run_pass`. If `last` is given, stops after that
/// pass. With options.leaves_out_unproven, undoes an optional pass that fails with kBug, and continues. Errors: kUsage
/// from a pass; kBug, with the name of the pass, if a verifier rejects it.
Result<Job> run_passes(const CompileOptions& options, std::string_view last = {}, const CompileObserver& observer = {});

/// Checks the invariants between passes: `verify_graph` accepts the graph, and every operator exists, accepts its
/// operands and produces outputs of the declared types (float16 counts as float32). Errors: kBug, with the operation.
Status verify_operations(const Graph& graph);

}  // namespace poprun
