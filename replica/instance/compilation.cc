#include "replica/instance/compilation.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "replica/check/check_variants.h"
#include "replica/choices/choices.h"
#include "replica/compilation/job_inputs.h"
#include "replica/report/out_of_memory.h"
#include "replica/search/memory_advice.h"

namespace poprun {

Result<Program> Compilation::job() {
  POPRUN_TRY(receive_model());
  const JobInputs inputs{reply_.config(), reply_.dataset(), onnx_};
  POPRUN_ASSIGN(CompileOptions options, compile_options(inputs.config, inputs.dataset, onnx_));
  options.layout_if_too_large = true;
  POPRUN_ASSIGN(Program program, compile_job(inputs, options, {.before_compilation = before_compilation_}));
  POPRUN_TRY(admit(program));
  POPRUN_ASSIGN(const WeightMatch match, take_weights(program));
  POPRUN_ASSIGN(const bool is_new, take_match(match, inputs, options, program));
  if (is_new) {
    POPRUN_TRY(admit(program));
  }
  return program;
}

Result<std::unique_ptr<TimedJob>> Compilation::timed_job() {
  if (reply_.config().topology().timed_replicas() > 0) {
    before_compilation_();
  }
  return TimedJob::compile({reply_.config(), reply_.dataset(), onnx_}, initialised_here_);
}

/// Rejects a Program that does not fit, with advice, unless the job is allowed to run anyway.
Status Compilation::admit(Program& program) {
  const proto::RunConfig& config = reply_.config();
  const bool allowed = config.memory().allow_out_of_memory();
  const Status fits = check_fits(program, [&] {
    if (allowed) {
      return MemoryAdvice{};
    }
    return memory_advice(program, config, reply_.dataset(), onnx_,
                         {{reply_.command().begin(), reply_.command().end()}, before_compilation_});
  });
  if (!fits && allowed) {
    allow_out_of_memory(fits.error(), config, program);
    return {};
  }
  return fits;
}

Result<CheckedVariants> Compilation::variants() {
  POPRUN_TRY(receive_model());
  POPRUN_ASSIGN(CheckedVariants checked, check_variants(reply_.config(), reply_.dataset(), onnx_));
  POPRUN_ASSIGN(const Program program, variant(checked.variants.front()));
  POPRUN_ASSIGN(WeightMatch match, take_weights(program));
  std::ranges::move(match.notes, std::back_inserter(checked.notes));
  return checked;
}

Result<Program> Compilation::variant(const Variant& variant) {
  POPRUN_ASSIGN(CompileOptions options, compile_options(config_of(variant, reply_.config()), reply_.dataset(), onnx_));
  options.initialised_here = initialised_here_;
  options.evaluation_batches =
      std::min(options.evaluation_batches, static_cast<std::int64_t>(kCheckedBatches) * options.compute_batches);
  return plan_program(options);
}

/// Sets `onnx_` if the configuration names an ONNX file.
Status Compilation::receive_model() {
  const proto::ModelConfig& model = reply_.config().model();
  if (model.onnx().empty()) {
    return {};
  }
  POPRUN_ASSIGN(const OnnxFile file, client_.receive_model());
  POPRUN_ASSIGN(onnx_, onnx_import::JobModel::parse(file.name, file.bytes, choice_of<Loss>(model.loss()),
                                                    model.trained_constants()));
  return {};
}

/// Sets `initial_weights_`, and also `initialised_here_` if some of the weights are missing from the file.
Result<WeightMatch> Compilation::take_weights(const Program& program) {
  if (onnx_ != nullptr) {
    POPRUN_ASSIGN(initial_weights_, onnx_->weights());
  }
  WeightMatch match;
  const std::vector<std::string> separate = onnx_ == nullptr ? std::vector<std::string>{} : onnx_->separate();
  const std::string& given = reply_.config().model().initial_weights();
  if (given.empty() && separate.empty()) {
    return match;
  }
  const WeightsPolicy policy = weights_policy(reply_.config());
  POPRUN_ASSIGN(FileTensors file, receive_weights());
  POPRUN_ASSIGN(match, match_initial_weights(program, file, policy));
  for (auto& [name, bytes] : weights_from(std::move(file), match)) {
    initial_weights_[name] = std::move(bytes);
  }
  for (const std::string& name : separate) {
    if (!initial_weights_.contains(name)) {
      return fail(ErrorCode::kData,
                  fmt::format("model.initial-weights = {} lacks '{}'; with an ONNX model that is larger "
                              "than 2 GiB, it must contain all weights",
                              given, name));
    }
  }
  if (!policy.model_has_weights) {
    initialised_here_ = match.absent;
  }
  return match;
}

/// Returns the file of initial weights in its stored types.
Result<FileTensors> Compilation::receive_weights() {
  FileTensors file;
  POPRUN_TRY(client_.receive_weights([&](const proto::TensorChunk& chunk) -> Status {
    FileTensor& tensor = file[chunk.name()];
    tensor.type = chunk.type();
    tensor.shape.assign(chunk.shape().begin(), chunk.shape().end());
    tensor.data += chunk.data();
    return {};
  }));
  for (auto& [name, tensor] : file) {
    tensor.digest = std::hash<std::string>{}(tensor.data);
  }
  return file;
}

}  // namespace poprun
