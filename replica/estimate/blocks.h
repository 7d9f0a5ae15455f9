#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "replica/graph/graph.h"

/// Parameters of a model by the block that they belong to: the blocks of table 3.1 in Graphcore's guide (guide.h).
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

/// Returns the kind of block whose product, normalisation or look-up an operation is, or else kOther.
BlockKind kind_of(const Operation& operation);

/// One convolution, dense layer and so on, with the parameters that it was the first to use.
struct Block {
  std::string name;  ///< The name of its parameters, without ".weight" and the like.
  BlockKind kind = BlockKind::kOther;
  std::int32_t layer = kNoLayer;    ///< The layer that uses it first; index into Graph::layers.
  std::int64_t weights = 0;         ///< Elements; scales of normalisations are weights.
  std::int64_t biases = 0;          ///< Elements; shifts of normalisations are biases.
  std::int64_t moving = 0;          ///< Moving averages, which are not trained.
  std::int64_t frozen_weights = 0;  ///< The part of `weights` that the job does not train.
  std::int64_t frozen_biases = 0;
  std::string formula;          ///< Table 3.1 with this block's numbers: "(3 x 3 x 64 + 1) x 128".
  std::int64_t by_formula = 0;  ///< Its result: weights + biases + moving.

  [[nodiscard]] std::int64_t parameters() const { return weights + biases; }
};

/// Returns the blocks of a model's forward pass, in the order of their first use. A parameter that several operations
/// use belongs to the first: a decoder whose weight is the word embedding has only its bias. Unused parameters come
/// last.
///
/// `forward`: first the operations of evaluation, in which batch normalisations also read their moving averages, then
/// those of training. `trained`: parameters that the optimiser updates.
std::vector<Block> find_blocks(const Graph& graph, const std::vector<const std::vector<Operation>*>& forward,
                               const std::set<TensorId>& trained);

/// Returns whether an operation only moves elements, so that its outputs hold no new numbers.
bool only_moves(const Operation& operation);

}  // namespace poprun
