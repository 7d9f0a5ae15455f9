#include "replica/answers/compile_question.h"

namespace poprun {

Result<std::shared_ptr<onnx_import::JobModel>> onnx_model_of(const proto::ModelConfig& model,
                                                             const std::string& bytes) {
  if (model.onnx().empty()) {
    return nullptr;
  }
  return onnx_import::JobModel::parse(model.onnx(), bytes, model.loss(), model.trained_constants());
}

Result<WeightMatch> match_weights_of(const proto::CompileQuestion& job, const Program& program) {
  if (job.config().model().initial_weights().empty()) {
    return WeightMatch{};
  }
  FileTensors file;
  for (const proto::TensorDescription& tensor : job.initial_weights()) {
    FileTensor& known = file[tensor.name()];
    known.type = tensor.type();
    known.shape.assign(tensor.shape().begin(), tensor.shape().end());
    known.digest = tensor.digest();
  }
  return match_initial_weights(program, file, weights_policy(job.config()));
}

}  // namespace poprun
