#pragma once

#include <string>

#include "replica/ops/builder/builder.h"

/// Losses other than `softmax_cross_entropy`. They compute in float32 in every precision. Each makes the builder refuse
/// (kUsage) labels that do not fit, with a message that starts with `where` ("data.source" or an option).
namespace poprun::layers {

/// Marks the tensors from `first` on as metrics, which are float32 in every precision.
void mark_metrics(Graph& graph, std::size_t first);

/// Compares logits [N,...] with labels that have the same number of elements: probabilities f32, or 0 and 1 as i32,
/// where negative labels do not count (ops/losses/binary_cross_entropy.cc). `label_classes` is the dataset's number of
/// classes, as in ModelInputs; more than two are refused.
ModelOutputs binary_cross_entropy(Builder& builder, const std::string& name, const std::string& where, TensorId logits,
                                  TensorId labels, std::int64_t label_classes);

/// Compares logits [N,T,C] of T frames with labels i32[N,S], padded with negative numbers. Class 0 is the blank
/// (ops/losses/ctc_loss.cc).
ModelOutputs ctc_loss(Builder& builder, const std::string& name, const std::string& where, TensorId logits,
                      TensorId labels);

/// Adds the symmetric contrastive loss (InfoNCE) of CLIP (Radford et al., 2021): the mean of the cross-entropies of the
/// rows and of the columns of `logits` [N,N], the scaled similarities of N pairs, whose diagonal is correct. The pairs
/// are those of one replica's (compute) batch. `labels`, i32[N], only mark padding: negative for a pair that does not
/// count and that no other pair is compared with. `correct` counts the rows with the largest logit on the diagonal.
ModelOutputs contrastive_loss(Builder& builder, const std::string& name, const std::string& where, TensorId logits,
                              TensorId labels);

}  // namespace poprun::layers
