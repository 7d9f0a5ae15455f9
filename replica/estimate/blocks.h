#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "replica/graph/graph.h"

/// The parameters of a model by what they belong to: the blocks of table 3.1 of Graphcore's guide (guide.h).
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

/// "convolution", "dense layer", "embeddings" ...
std::string_view name_of(BlockKind kind);

/// The block to which an operation's output is counted: that of the block whose product, normalisation or look-up it
/// is, otherwise kOther.
BlockKind kind_of(const Operation& operation);

/// One convolution, dense layer and so on, with the parameters that it was the first to use.
struct Block {
  std::string name;  ///< Its parameters', without ".weight" and the like.
  BlockKind kind = BlockKind::kOther;
  std::int32_t layer = kNoLayer;    ///< Its first user's; index into Graph::layers.
  std::int64_t weights = 0;         ///< Elements; scales of normalisations are weights.
  std::int64_t biases = 0;          ///< Likewise their shifts.
  std::int64_t moving = 0;          ///< Moving averages, which are not trained.
  std::int64_t frozen_weights = 0;  ///< Those of `weights` that the job does not train.
  std::int64_t frozen_biases = 0;
  std::string formula;          ///< Table 3.1 with this block's numbers: "(3 x 3 x 64 + 1) x 128".
  std::int64_t by_formula = 0;  ///< What that gives: weights + biases + moving.

  [[nodiscard]] std::int64_t parameters() const { return weights + biases; }
};

/// The blocks of a model's forward pass, in the order of their first use. A parameter that several operations use
/// belongs to the first: a decoder whose weight is the word embedding has only its bias. Those that no operation uses
/// come last.
///
/// `forward`: first the operations of evaluation, in which batch normalisations have their moving averages beside them,
/// then those of training. `trained`: parameters that the optimiser updates.
std::vector<Block> find_blocks(const Graph& graph, const std::vector<const std::vector<Operation>*>& forward,
                               const std::set<TensorId>& trained);

/// The same, for operations that only move elements: their outputs hold the same numbers once more.
bool only_moves(const Operation& operation);

}  // namespace poprun
