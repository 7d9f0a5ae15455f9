#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/units.h"
#include "replica/graph/graph.h"

/// The estimates from Graphcore's "Memory and Performance Optimisation on the IPU", section 3.4, as printed there. They
/// count numbers, not bytes, and assume that every number has the same size.
namespace poprun::guide {

/// Table 3.1: parameters of one block.
///
///   convolution   kernel w x h, C channels (of a group), N filters    (w * h * C + 1) * N
///   dense layer   n inputs, p outputs                                 n * p weights, p biases
///   batch norm    n on the normalised axis   2n moving averages, and in training 2n scale and location
///   layer norm    n inputs                   2n
///   embeddings    vocabulary N, hidden h     N * h
///
/// `biases` is false for blocks without biases. The table does not cover them; their formulas omit the 1 or the p.
constexpr std::int64_t convolution(std::int64_t w, std::int64_t h, std::int64_t C, std::int64_t N, bool biases = true) {
  return (w * h * C + (biases ? 1 : 0)) * N;
}
constexpr std::int64_t dense_layer(std::int64_t n, std::int64_t p, bool biases = true) {
  return n * p + (biases ? p : 0);
}
constexpr std::int64_t batch_norm(std::int64_t n, bool training) {
  return 2 * n + (training ? 2 * n : 0);
}
constexpr std::int64_t layer_norm(std::int64_t n) {
  return 2 * n;
}
constexpr std::int64_t embeddings(std::int64_t N, std::int64_t h) {
  return N * h;
}

/// Inputs of the formulas of sections 3.4.2 to 3.4.5.
struct Counts {
  std::int64_t weights = 0;
  std::int64_t biases = 0;
  std::int64_t non_trainable = 0;
  std::int64_t optimiser_states = 0;  ///< Used only in training, as are `activations`.
  std::int64_t activations = 0;       ///< Per sample.
  std::int64_t compute_batch = 1;     ///< B_size
  std::int64_t bytes_per_number = 4;  ///< N_FP: 2 in half precision.

  /// N_gradients = N_activations * B_size
  [[nodiscard]] std::int64_t gradients() const { return activations * compute_batch; }

  /// N_backprop_vars = N_weights + N_biases + N_non_trainable + N_optimiser_states
  [[nodiscard]] std::int64_t backprop_vars() const { return weights + biases + non_trainable + optimiser_states; }

  /// (N_weights + N_biases + N_non_trainable) * N_FP
  [[nodiscard]] Bytes inference_total() const { return Bytes{(weights + biases + non_trainable) * bytes_per_number}; }

  /// (N_weights + N_biases + N_gradients + N_optimiser_states + N_backprop_vars) * N_FP; as printed, it counts the
  /// optimiser states twice, since N_backprop_vars also contains them.
  [[nodiscard]] Bytes training_total() const {
    return Bytes{(weights + biases + gradients() + optimiser_states + backprop_vars()) * bytes_per_number};
  }

  [[nodiscard]] Bytes training_total_states_once() const {
    return Bytes{training_total().count() - optimiser_states * bytes_per_number};
  }
};

}  // namespace poprun::guide

/// Groups the parameters of a model into the blocks of table 3.1 in Graphcore's guide.
namespace poprun {

enum class BlockKind : std::uint8_t {
  kConvolution,
  kDense,
  kEmbedding,
  kBatchNorm,
  kLayerNorm,
  kGroupNorm,  ///< Also instance normalisation, and layer normalisation of images.
  kOther,
};

/// Returns "convolution", "dense layer", "embeddings" ...
std::string_view name_of(BlockKind kind);

/// Returns the kind of the block whose product, normalisation or look-up the operation computes, or else kOther.
BlockKind kind_of(const Operation& operation);

/// A convolution, a dense layer and so on, with the parameters that no earlier block uses.
struct Block {
  std::string name;  ///< The name of its parameters, without a suffix such as ".weight".
  BlockKind kind = BlockKind::kOther;
  std::int32_t layer = kNoLayer;    ///< The layer that uses it first; index into Graph::layers.
  std::int64_t weights = 0;         ///< Elements; scales of normalisations are weights.
  std::int64_t biases = 0;          ///< Elements; shifts of normalisations are biases.
  std::int64_t moving = 0;          ///< Moving averages, which are not trained.
  std::int64_t frozen_weights = 0;  ///< The part of `weights` that the job does not train.
  std::int64_t frozen_biases = 0;
  std::string formula;          ///< Table 3.1 with this block's numbers: "(3 x 3 x 64 + 1) x 128".
  std::int64_t by_formula = 0;  ///< The formula's result: weights + biases + moving.

  [[nodiscard]] std::int64_t parameters() const { return weights + biases; }
};

/// Returns the blocks of a model's forward pass, in the order of their first use. A parameter that several operations
/// use belongs to the block of the first operation: a decoder whose weight is the word embedding is listed with only
/// its bias. Unused parameters come last. `forward` lists the operations of evaluation, in which batch normalisations
/// also read their moving averages, before those of training. `trained` lists the parameters that are updated.
std::vector<Block> find_blocks(const Graph& graph, const std::vector<const std::vector<Operation>*>& forward,
                               const std::set<TensorId>& trained);

/// Returns whether an operation only moves elements, so that its outputs contain no new numbers.
bool only_moves(const Operation& operation);

}  // namespace poprun
