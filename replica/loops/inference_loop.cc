#include "replica/loops/inference_loop.h"

#include <cmath>
#include <vector>

#include "replica/graph/types.h"
#include "replica/program/timeline.h"

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

InferenceLoop::InferenceLoop(const Program& program, const EngineOptions& options, const LoopPorts& ports,
                             Outfeed& outfeed)
    : program_(program),
      options_(options),
      ports_(ports),
      outfeed_(outfeed),
      pass_(program, ports.streams(JobStream::kTest, 0)) {}

Result<LoopResult> InferenceLoop::run() {
  LoopResult result;
  POPRUN_ASSIGN(const std::unique_ptr<Engine> engine, load_engine(program_, ports_, *this, options_, result.steps));
  result.first_step_began = now_seconds();
  POPRUN_TRY(pass_.run(*engine));
  result.evaluation_seconds = now_seconds() - result.first_step_began;
  result.device_time = engine->device_time();
  result.wall = engine->wall();
  result.high_water = engine->high_water();
  result.streaming_high_water = engine->streaming_high_water();
  result.tile_high_water = engine->tile_high_water();
  result.last_evaluation = pass_.report();
  result.last_evaluation.wall_seconds = result.evaluation_seconds;
  result.last_evaluation.device_seconds = device_seconds(program_, result.device_time);
  if (ports_.reporter != nullptr && result.last_evaluation.items > 0) {
    ports_.reporter->evaluation(result.last_evaluation);
  }
  ports_.progress.progress(ports_.communicator.self(), result.steps, "finishing");
  return result;
}

Status InferenceLoop::write(const std::string& stream, const StreamPart& part) {
  if (stream == name_of(JobStream::kTest)) {
    return pass_.write_batch(part);
  }
  if (stream == name_of(JobStream::kWeights)) {
    return write_weights(ports_.initial_weights, ports_.communicator, part.tensors);
  }
  return refuse_stream(stream);
}

Status InferenceLoop::read(const std::string& stream, const StreamPart& part) {
  if (stream == name_of(JobStream::kOutputs)) {
    return push_outputs(part.micro_batch, part.tensors.front());
  }
  if (stream == name_of(JobStream::kEvaluation)) {
    return pass_.read_outcome(part.tensors);
  }
  return refuse_stream(stream);
}

Status InferenceLoop::push_outputs(std::uint64_t batch, const HostTensor& tensor) {
  std::vector<std::byte> storage;
  return outfeed_.push(batch, element_name(tensor.type.data), tensor.type.shape,
                       row_major(tensor.type, tensor.bytes, storage));
}

}  // namespace poprun
