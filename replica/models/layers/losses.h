#pragma once

#include <cstdint>
#include <optional>
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
/// are those of one replica's (compute) batch; global_contrastive_loss has those of all replicas. `labels`, i32[N],
/// only mark padding: negative for a pair that does not count and that no other pair is compared with. `correct` counts
/// the rows with the largest logit on the diagonal.
ModelOutputs contrastive_loss(Builder& builder, const std::string& name, const std::string& where, TensorId logits,
                              TensorId labels);

/// Embeddings f32[N,D] of N pairs, and the factor of their similarities, 1 if absent.
struct Pairs {
  TensorId left;
  TensorId right;
  std::optional<TensorId> scale = {};
};

/// Adds the contrastive loss of the pairs of all replicas, as open_clip's with `local_loss` and `gather_with_grad`:
/// each replica gathers the embeddings of all replicas, and compares its own N with all N * replicas, in both
/// directions. The mean of the replicas' losses is the loss of one replica that has all pairs, and so is the mean of
/// their gradients, exactly but for rounding: the gradients of gathered embeddings are summed over the replicas. (If
/// some pairs do not count, the replicas' means must be weighted by their `count`, as evaluation does.) Pairs are those
/// of one micro-batch (or compute batch) of each replica.
///
/// Cost: two all-gathers of N * replicas * D elements, one of labels, and in training two reduce-scatters. Errors: also
/// refuses outputs of other shapes. Labels and results are as in contrastive_loss; the prediction is `left`.
ModelOutputs global_contrastive_loss(Builder& builder, const std::string& name, const std::string& where,
                                     const Pairs& pairs, TensorId labels, std::int64_t replicas);

}  // namespace poprun::layers
