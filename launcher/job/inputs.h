#pragma once

#include <vector>

#include "launcher/outputs/read_file.h"
#include "launcher/outputs/safetensors.h"
#include "proto/run_config.pb.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// The files that a model starts from, as far as its configuration names any. Replicas read no files: the launcher
/// sends them what they need.
struct ModelInputs {
  std::vector<Tensor> initial_weights;
  OnnxFile onnx;
};

/// Reads the files. Errors: those of read_safetensors and read_onnx_file.
Result<ModelInputs> read_inputs(const proto::ModelConfig& model);

}  // namespace poprun::launcher
