#include "replica/loops/evaluation_pass.h"

#include <cmath>

#include "replica/loops/host_streams.h"

namespace poprun {

Status EvaluationPass::run(Engine& engine) {
  POPRUN_TRY(engine.run(name_of(JobFunction::kEvaluateBegin)));
  POPRUN_TRY(engine.run(name_of(JobFunction::kEvaluate)));
  return engine.run(name_of(JobFunction::kEvaluateEnd));
}

Status EvaluationPass::read_outcome(std::span<const HostTensor> tensors) {
  return unpack(JobStream::kEvaluation, outcome_.fields(), named_bytes(tensors));
}

EvaluationReport EvaluationPass::report() const {
  EvaluationReport report;
  report.loss = outcome_.metrics.loss();
  report.accuracy = outcome_.metrics.accuracy();
  report.items = static_cast<std::uint64_t>(std::llround(outcome_.metrics.items.value()));
  return report;
}

}  // namespace poprun
