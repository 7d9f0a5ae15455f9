#include "replica/compiler/passes/pass.h"

/// Replaces each gradient by an accumulator over the step's micro-batches: their sum, or in half
/// precision their running mean, which neither overflows nor loses the last of many terms.
namespace poprun {
namespace {

constexpr std::string_view kName = "accumulation";

bool applies(const CompileOptions& options) {
  return in_training(options) && options.gradient_accumulation > 1;
}

Status run(const CompileOptions& options, Job& job) {
  TrainingStep& step = *job.training;
  Builder begin(job.graph, step.begin, "");
  Builder body(job.graph, step.micro_batch, "");
  const Attributes attributes{{"mean", std::int64_t{options.precision.half ? 1 : 0}}};
  for (ParameterGradient& pair : step.gradients) {
    const std::string name = job.graph.tensor(pair.parameter).name + ".accumulator";
    const TensorId sum = begin.add_one(
        "fill", {}, {{"shape", begin.type(pair.parameter).shape}, {"value", 0.0}}, name);
    job.graph.set_role(sum, Role::kGradient);
    body.update("accumulate", {sum, pair.gradient}, attributes, {sum});
    pair.gradient = sum;
  }
  POPRUN_TRY(begin.status());
  return body.status();
}

/// Each accumulator is zeroed once a step, and takes its parameter's gradient once a micro-batch.
Status verify(const CompileOptions& options, const Job& before, const Job& after) {
  const Graph& graph = after.graph;
  const TrainingStep& step = *after.training;
  const Writers begin(graph, step.begin);
  const Writers body(graph, step.micro_batch);
  for (std::size_t i = 0; i < step.gradients.size(); ++i) {
    const TensorId sum = step.gradients[i].gradient;
    const TensorId gradient = before.training->gradients[i].gradient;
    const auto& zeroes = begin.of(sum);
    const auto& adds = body.of(sum);
    if (zeroes.size() != 1 || zeroes[0]->kind != "fill" ||
        zeroes[0]->attributes.real("value") != 0) {
      return pass_bug(kName, graph, sum, "is not zero at the start of the step");
    }
    if (adds.size() != 1 || adds[0]->kind != "accumulate" ||
        adds[0]->inputs != std::vector{sum, gradient} ||
        (adds[0]->attributes.integer("mean") != 0) != options.precision.half) {
      return pass_bug(kName, graph, sum, "does not take its gradient exactly once per micro-batch");
    }
  }
  return {};
}

}  // namespace

Pass accumulation_pass() {
  return {kName, applies, run, verify};
}

}  // namespace poprun
