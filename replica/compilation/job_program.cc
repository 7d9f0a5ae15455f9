#include "replica/compilation/job_program.h"

#include "replica/compilation/job_inputs.h"

namespace poprun {

Result<Program> compile_job(const JobInputs& inputs, const CompileOptions& options, const CompileObserver& observer) {
  POPRUN_ASSIGN(Program program, plan_program(options, observer));
  add_notes(inputs.onnx.get(), inputs.config, inputs.dataset, program);
  return program;
}

Result<bool> take_match(const WeightMatch& match, const JobInputs& inputs, CompileOptions& options, Program& program) {
  const bool compiles = !match.absent.empty() && !weights_policy(inputs.config).model_has_weights;
  if (compiles) {
    options.initialised_here = match.absent;
    POPRUN_ASSIGN(program, compile_job(inputs, options));
  }
  for (const Note& note : match.notes) {
    add_note(note, program);
  }
  return compiles;
}

}  // namespace poprun
