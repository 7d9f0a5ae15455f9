#pragma once

#include <string>
#include <string_view>

#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/compilation/weight_names.h"
#include "replica/loops/host_streams.h"
#include "replica/program/program.h"

/// The file of initial weights, as the Program takes it.
namespace poprun {

struct WeightsPolicy {
  bool model_has_weights = false;  ///< An ONNX model: what the file lacks has the model's values.
  bool partial = false;            ///< What the file lacks keeps its initialisation.
};
WeightsPolicy weights_policy(const proto::RunConfig& config);

/// Matches the weights that the Program reads from the host with the file's tensors.
/// Errors: those of match_weights.
Result<WeightMatch> match_initial_weights(const Program& program, const FileTensors& file, const WeightsPolicy& policy);

/// The matched weights as float32 bytes, by the model's names. Frees each tensor as it goes. Requires: the file's data,
/// and a match of it.
HostWeights weights_from(FileTensors file, const WeightMatch& match);

/// The numbers in `data`, of the type ("f32", "f16", "bf16" or "f64"), as float32 bytes. The first three keep their
/// values.
std::string as_f32(std::string_view type, std::string data);

}  // namespace poprun
