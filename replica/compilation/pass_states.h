#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/compiler/job/pass.h"

/// The passes of a compilation as text, which `poprun-emu --dry-run -vv` prints and poprun-emu-opt reads:
///
///   # options                     a CompileQuestion in Protobuf text format
///   config { ... }
///   dataset { ... }
///
///   # job after pass forward      the job (job_text.h), after each pass in turn
///   ...
namespace poprun {

/// Returns the first section, `# options`, with a line break at its end.
std::string options_text(const proto::RunConfig& config, const proto::Dataset& dataset);

/// Returns a job as text, under a heading that names the pass after which it was printed.
std::string state_text(std::string_view pass, const Job& job);

/// Returns the bytes of the file that `model.onnx` names.
using ReadModel = std::function<Result<std::string>(const std::string& path)>;

/// Runs the pass alone, with its verifiers, on the job before it in `states`, and appends the resulting job to `text`,
/// even if a verifier rejects it. `states` may contain other lines around the jobs. A line `# job` begins a job that
/// was not made by a pass. If the compiler compiled several times to settle options, the jobs of the first compilation
/// are used. The proof of equivalence starts from the last job that comes no later than the pass "precision". If there
/// is none, a line says so. Errors: kUsage, with the line, if the text is invalid or contains no job before the pass,
/// or if the options do not enable the pass; those of `read`, compile_options and run_pass.
Status run_alone(std::string_view pass, std::string_view states, const ReadModel& read, std::string& text);

}  // namespace poprun
