#include "launcher/job/inputs.h"

namespace poprun::launcher {

Result<ModelInputs> read_inputs(const proto::ModelConfig& model) {
  ModelInputs inputs;
  if (!model.initial_weights().empty()) {
    POPRUN_ASSIGN(inputs.initial_weights, read_safetensors(model.initial_weights()));
  }
  if (!model.onnx().empty()) {
    POPRUN_ASSIGN(inputs.onnx, read_onnx_file(model.onnx()));
  }
  return inputs;
}

}  // namespace poprun::launcher
