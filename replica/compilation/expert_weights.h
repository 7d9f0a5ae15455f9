#pragma once

#include <optional>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/note.h"
#include "replica/compilation/weight_names.h"

/// Experts in files of initial weights. Hugging Face's Mixtral has a tensor for each expert, the model's weights are
/// those of all experts of a layer:
///
///     model.layers.0.block_sparse_moe.experts.0.w1.weight [I,H]
///     model.layers.0.block_sparse_moe.experts.1.w1.weight [I,H]  ->  model.layers.0.block_sparse_moe.experts.w1.weight
///                                                                    [2,I,H]
namespace poprun {

/// Replaces the tensors of experts by stacks of them, in the order of the experts, if the model wants the stacks. The
/// bytes are stacked if `file` has them. Returns a note if anything was stacked. Errors: kData if the experts of a
/// stack are not numbered from 0 without gaps, or differ in shape or type; the message names the tensor. Cost: copies
/// the experts' bytes once; needs memory for one stack more than `file`.
Result<std::optional<Note>> stack_experts(const std::vector<WantedWeight>& wanted, FileTensors& file);

}  // namespace poprun
