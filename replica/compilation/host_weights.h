#pragma once

#include <string>
#include <string_view>

#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/compilation/weight_names.h"
#include "replica/loops/host_streams.h"
#include "replica/program/program.h"

/// Converts the tensors in the file of initial weights to the weights that the Program reads.
namespace poprun {

struct WeightsPolicy {
  bool model_has_weights = false;  ///< An ONNX model provides the weights that are missing from the file.
  bool partial = false;            ///< Weights that are missing from the file keep their initialisation.
};
WeightsPolicy weights_policy(const proto::RunConfig& config);

/// Matches the weights that the Program reads from the host with the file's tensors, after stacking those of single
/// experts in `file`. Errors: those of stack_experts and match_weights.
Result<WeightMatch> match_initial_weights(const Program& program, FileTensors& file, const WeightsPolicy& policy);

/// Returns the matched weights as float32 bytes, keyed by the model's names. Frees each tensor after use. Requires:
/// `file` contains the data, and `match` belongs to it.
HostWeights weights_from(FileTensors file, const WeightMatch& match);

/// Converts numbers of a type ("f32", "f16", "bf16" or "f64") to float32 bytes. Only "f64" can lose precision.
std::string as_f32(std::string_view type, std::string data);

}  // namespace poprun
