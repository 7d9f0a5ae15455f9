#pragma once

#include <optional>
#include <string>

#include "replica/graph/graph.h"

/// Kinds of the operators that passes look for or add. Their families register them under these names.
namespace poprun::kinds {

// Products.
inline constexpr const char* kLinear = "linear";
inline constexpr const char* kLinearInputGradient = "linear_input_gradient";
inline constexpr const char* kLinearWeightGradient = "linear_weight_gradient";
inline constexpr const char* kMatmul = "matmul";
inline constexpr const char* kConv2d = "conv2d";
inline constexpr const char* kConv2dInputGradient = "conv2d_input_gradient";

// Movement.
inline constexpr const char* kReshape = "reshape";
inline constexpr const char* kTranspose = "transpose";
inline constexpr const char* kExpand = "expand";
inline constexpr const char* kSlice = "slice";
inline constexpr const char* kSliceGradient = "slice_gradient";
inline constexpr const char* kInsert = "insert";
inline constexpr const char* kConcat = "concat";
inline constexpr const char* kGather = "gather";
inline constexpr const char* kGatherGradient = "gather_gradient";
inline constexpr const char* kGatherElements = "gather_elements";
inline constexpr const char* kGatherNd = "gather_nd";

// Elementwise arithmetic.
inline constexpr const char* kAdd = "add";
inline constexpr const char* kSub = "sub";
inline constexpr const char* kMul = "mul";
inline constexpr const char* kCast = "cast";
inline constexpr const char* kFill = "fill";
inline constexpr const char* kAccumulate = "accumulate";
inline constexpr const char* kAccumulateMetrics = "accumulate_metrics";

// Normalisation.
inline constexpr const char* kBatchNormTraining = "batch_norm_training";
inline constexpr const char* kBatchNormInference = "batch_norm_inference";
inline constexpr const char* kBatchNormUpdate = "batch_norm_update";
inline constexpr const char* kBatchNormTrainingGradient = "batch_norm_training_gradient";
inline constexpr const char* kBatchNormMoments = "batch_norm_moments";
inline constexpr const char* kBatchNormStatistics = "batch_norm_statistics";
inline constexpr const char* kBatchNormSums = "batch_norm_sums";
inline constexpr const char* kBatchNormGroupGradient = "batch_norm_group_gradient";
inline constexpr const char* kFoldBatchNorm = "fold_batch_norm";
inline constexpr const char* kLayerNorm = "layer_norm";

// Losses.
inline constexpr const char* kSoftmaxCrossEntropy = "softmax_cross_entropy";
inline constexpr const char* kJoinLosses = "join_losses";

}  // namespace poprun::kinds

namespace poprun {

/// Flag attributes of products. A flag is either 1 or absent, which means 0.
inline constexpr const char* kInputMajor = "input_major";
inline constexpr const char* kTransposeA = "transpose_a";
inline constexpr const char* kTransposeB = "transpose_b";

/// Attribute of a softmax_cross_entropy: the part of a label's probability that is spread over all classes.
inline constexpr const char* kSmoothing = "smoothing";

/// Attribute of a matmul: the factor by which its result is multiplied.
inline constexpr const char* kScale = "scale";

/// Returns whether a flag is present and 1.
bool is_set(const Attributes& attributes, const std::string& name);

/// If an operation multiplies rows by one matrix of weights, returns an equivalent `linear`, whose gradient operations
/// inherit any attributes that are set on it. Returns nothing for any other operation.
std::optional<Operation> as_linear(const Graph& graph, const Operation& operation);

}  // namespace poprun
