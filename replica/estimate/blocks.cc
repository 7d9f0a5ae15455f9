#include "replica/estimate/blocks.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"
#include "replica/ops/face/kinds.h"

namespace poprun {
namespace {

constexpr std::array<std::string_view, 7> kMoves = {kinds::kReshape, kinds::kTranspose, kinds::kExpand, kinds::kSlice,
                                                    kinds::kConcat,  kinds::kFill,      kinds::kCast};

struct Use {
  BlockKind kind = BlockKind::kOther;
  bool bias = false;
};

/// A parameter, or part of one, after operations that only move elements.
struct Moved {
  TensorId parameter;
  bool sliced = false;
};

bool is_table(const Shape& shape) {
  return std::ranges::count_if(shape, [](std::int64_t d) { return d > 1; }) > 1;
}

bool is_addition(const Operation& operation) {
  return operation.kind == kinds::kAdd || operation.kind == kinds::kSub;
}

std::string factors(const Shape& shape) {
  std::vector<std::string> parts;
  for (const std::int64_t dimension : shape) {
    parts.push_back(grouped(dimension));
  }
  return parts.empty() ? "1" : fmt::format("{}", fmt::join(parts, " x "));
}

/// A block with the inputs of its formula.
struct Draft {
  Block block;
  Shape weight;              ///< Shape of the first weight.
  std::int64_t outputs = 0;  ///< Outputs of a dense layer, p in the guide.
};

void add_formula(Draft& draft) {
  Block& b = draft.block;
  const Shape& w = draft.weight;
  const bool biases = b.biases > 0;
  if (b.kind == BlockKind::kConvolution && w.size() == 4 && (!biases || b.biases == w[0])) {
    const std::string taps = fmt::format("{} x {} x {}", w[3], w[2], grouped(w[1]));
    b.formula =
        biases ? fmt::format("({} + 1) x {}", taps, grouped(w[0])) : fmt::format("{} x {}", taps, grouped(w[0]));
    b.by_formula = guide::convolution(w[3], w[2], w[1], w[0], biases);
  } else if (b.kind == BlockKind::kDense && b.weights > 0 && b.weights % draft.outputs == 0) {
    const std::int64_t n = b.weights / draft.outputs;
    b.formula =
        fmt::format("{} x {}{}", grouped(n), grouped(draft.outputs), biases ? " + " + grouped(draft.outputs) : "");
    b.by_formula = guide::dense_layer(n, draft.outputs, biases);
  } else if (b.kind == BlockKind::kBatchNorm && b.weights > 0 && b.weights == b.biases) {
    b.formula = fmt::format("2 x {0} + 2 x {0}", grouped(b.weights));
    b.by_formula = guide::batch_norm(b.weights, true);
  } else if ((b.kind == BlockKind::kLayerNorm || b.kind == BlockKind::kGroupNorm) && b.weights == b.biases) {
    b.formula = fmt::format("2 x {}", grouped(b.weights));
    b.by_formula = guide::layer_norm(b.weights);
  } else if (b.kind == BlockKind::kEmbedding && b.biases == 0 && w.size() == 2) {
    b.formula = factors(w);
    b.by_formula = guide::embeddings(w[0], w[1]);
  } else {
    const bool tied = b.kind == BlockKind::kDense && b.weights == 0;
    b.formula = tied ? grouped(b.biases) + ", weights of another block" : grouped(b.weights + b.biases + b.moving);
    b.by_formula = b.weights + b.biases + b.moving;
  }
}

class Finder {
 public:
  Finder(const Graph& graph, const std::set<TensorId>& trained) : graph_(graph), trained_(trained) {}

  void visit(const Operation& operation) {
    if (only_moves(operation)) {
      follow(operation);
      return;
    }
    for (std::size_t i = 0; i < operation.inputs.size(); ++i) {
      const TensorId input = operation.inputs[i];
      if (graph_.tensor(input).role == Role::kBuffer) {
        take_moving(input, operation);
      } else if (const std::optional<Moved> moved = moved_parameter(input)) {
        take(*moved, use_of(*moved, operation, i), operation);
      }
    }
    remember(operation);
  }

  std::vector<Block> finish() {
    for (std::uint32_t t = 0; t < graph_.tensors().size(); ++t) {
      const TensorId id{t};
      if (graph_.tensor(id).role == Role::kParameter) {
        take({id, false}, {}, {});
      } else if (graph_.tensor(id).role == Role::kBuffer) {
        take_moving(id, {});
      }
    }
    std::vector<Block> blocks;
    for (Draft& draft : drafts_) {
      add_formula(draft);
      blocks.push_back(std::move(draft.block));
    }
    return blocks;
  }

 private:
  [[nodiscard]] std::optional<Moved> moved_parameter(TensorId id) const {
    if (graph_.tensor(id).role == Role::kParameter) {
      return Moved{id, false};
    }
    const auto found = moved_.find(id);
    return found == moved_.end() ? std::nullopt : std::optional{found->second};
  }

  /// Follows a tensor through an operation that only moves elements.
  void follow(const Operation& operation) {
    if (operation.inputs.empty()) {
      return;
    }
    const TensorId input = operation.inputs[0];
    if (std::optional<Moved> moved = moved_parameter(input)) {
      moved->sliced = moved->sliced || operation.kind == kinds::kSlice;
      moved_.insert_or_assign(operation.outputs[0], *moved);
    } else if (const auto made = made_by_.find(input); made != made_by_.end()) {
      made_by_.insert_or_assign(operation.outputs[0], made->second);
    }
  }

  /// Returns the index of the block that computed the other operand of an addition or a product.
  [[nodiscard]] std::optional<std::size_t> other_operand(const Operation& operation, std::size_t input) const {
    if (operation.inputs.size() != 2) {
      return std::nullopt;
    }
    const auto made = made_by_.find(operation.inputs[1 - input]);
    return made == made_by_.end() ? std::nullopt : std::optional{made->second};
  }

  [[nodiscard]] Use use_of(const Moved& moved, const Operation& operation, std::size_t input) const {
    const BlockKind kind = kind_of(operation);
    if (kind != BlockKind::kOther) {
      return {kind, input == 2 && operation.kind != kinds::kMatmul};
    }
    if (is_addition(operation) && (moved.sliced || is_table(graph_.tensor(moved.parameter).type.shape))) {
      return {BlockKind::kEmbedding, false};  // A table of positions.
    }
    const std::optional<std::size_t> other = other_operand(operation, input);
    const BlockKind made = other ? drafts_[*other].block.kind : BlockKind::kOther;
    const bool is_normalised = made == BlockKind::kLayerNorm || made == BlockKind::kGroupNorm;
    if ((operation.kind == kinds::kMul || is_addition(operation)) && is_normalised) {
      return {BlockKind::kGroupNorm, is_addition(operation)};
    }
    return is_addition(operation) ? Use{made, true} : Use{};
  }

  /// Returns the block of the given kind to which the operation belongs. If there is none, makes a new block.
  Draft& draft_of(const Operation& operation, BlockKind kind, const std::string& name) {
    std::optional<std::size_t> known;
    if (!operation.outputs.empty()) {
      const auto own = made_by_.find(operation.outputs[0]);
      known = own == made_by_.end() ? std::nullopt : std::optional{own->second};
    }
    // A bias or shift belongs to the block to whose result it is added, but a table of positions does not.
    const bool joins =
        kind != BlockKind::kEmbedding && kind_of(operation) == BlockKind::kOther && operation.inputs.size() == 2;
    for (std::size_t i = 0; joins && !known && i < 2; ++i) {
      known = other_operand(operation, i);
    }
    if (known && drafts_[*known].block.kind == BlockKind::kLayerNorm && kind == BlockKind::kGroupNorm &&
        drafts_[*known].block.parameters() == 0) {
      drafts_[*known].block.kind = kind;
    }
    if (known && drafts_[*known].block.kind == kind) {
      return drafts_[*known];
    }
    drafts_.push_back({});
    Draft& draft = drafts_.back();
    draft.block.name = name;
    draft.block.kind = kind;
    draft.block.layer = operation.origin.layer;
    if (!operation.outputs.empty()) {
      made_by_.insert_or_assign(operation.outputs[0], drafts_.size() - 1);
      const Shape& y = graph_.tensor(operation.outputs[0]).type.shape;
      draft.outputs = y.empty() ? 1 : std::max<std::int64_t>(1, y.back());
    }
    return draft;
  }

  void take(const Moved& moved, const Use& use, const Operation& operation) {
    if (!taken_.insert(moved.parameter).second) {
      return;
    }
    const Tensor& tensor = graph_.tensor(moved.parameter);
    const std::int64_t elements = tensor.type.elements();
    Draft& draft = draft_of(operation, use.kind, name_of_block(tensor.name));
    if (draft.block.parameters() + draft.block.moving == 0) {
      draft.block.name = name_of_block(tensor.name);
      draft.block.layer = operation.origin.layer;
    }
    const std::int64_t frozen = trained_.contains(moved.parameter) ? 0 : elements;
    if (use.bias) {
      draft.block.biases += elements;
      draft.block.frozen_biases += frozen;
    } else {
      draft.weight = draft.block.weights == 0 ? tensor.type.shape : draft.weight;
      draft.block.weights += elements;
      draft.block.frozen_weights += frozen;
    }
  }

  void take_moving(TensorId buffer, const Operation& operation) {
    if (taken_.insert(buffer).second) {
      const Tensor& tensor = graph_.tensor(buffer);
      draft_of(operation, BlockKind::kBatchNorm, name_of_block(tensor.name)).block.moving += tensor.type.elements();
    }
  }

  /// Records the block of an operation under its output, even if the block has no parameters yet: later operations may
  /// add some.
  void remember(const Operation& operation) {
    const BlockKind kind = kind_of(operation);
    if (operation.outputs.empty() || made_by_.contains(operation.outputs[0])) {
      return;
    }
    if (kind != BlockKind::kOther) {
      draft_of(operation, kind, graph_.tensor(operation.outputs[0]).name);
      return;
    }
    // A bias may be added to a product that has been scaled, and a shift to scaled values.
    for (std::size_t i = 0; operation.kind == kinds::kMul && i < operation.inputs.size(); ++i) {
      if (const auto made = made_by_.find(operation.inputs[i]); made != made_by_.end()) {
        made_by_.insert_or_assign(operation.outputs[0], made->second);
        return;
      }
    }
  }

  static std::string name_of_block(const std::string& parameter) {
    const std::size_t dot = parameter.rfind('.');
    return dot == std::string::npos || dot == 0 ? parameter : parameter.substr(0, dot);
  }

  const Graph& graph_;
  const std::set<TensorId>& trained_;
  std::vector<Draft> drafts_;
  std::map<TensorId, Moved> moved_;
  std::map<TensorId, std::size_t> made_by_;  ///< For each output tensor, the index of its block.
  std::set<TensorId> taken_;
};

}  // namespace

std::string_view name_of(BlockKind kind) {
  switch (kind) {
    case BlockKind::kConvolution:
      return "convolution";
    case BlockKind::kDense:
      return "dense layer";
    case BlockKind::kEmbedding:
      return "embeddings";
    case BlockKind::kBatchNorm:
      return "batch norm";
    case BlockKind::kLayerNorm:
      return "layer norm";
    case BlockKind::kGroupNorm:
      return "group norm";
    case BlockKind::kOther:
      return "other";
  }
  return "";
}

BlockKind kind_of(const Operation& operation) {
  static const std::map<std::string_view, BlockKind> kKinds = {
      {kinds::kConv2d, BlockKind::kConvolution},
      {kinds::kConv2dInputGradient, BlockKind::kConvolution},  // A transposed convolution.
      {kinds::kLinear, BlockKind::kDense},
      {kinds::kMatmul, BlockKind::kDense},
      {kinds::kGather, BlockKind::kEmbedding},
      {kinds::kGatherElements, BlockKind::kEmbedding},
      {kinds::kGatherNd, BlockKind::kEmbedding},
      {kinds::kBatchNormTraining, BlockKind::kBatchNorm},
      {kinds::kBatchNormInference, BlockKind::kBatchNorm},
      {kinds::kLayerNorm, BlockKind::kLayerNorm}};
  const auto found = kKinds.find(operation.kind);
  return found == kKinds.end() ? BlockKind::kOther : found->second;
}

bool only_moves(const Operation& operation) {
  return std::ranges::find(kMoves, operation.kind) != kMoves.end();
}

std::vector<Block> find_blocks(const Graph& graph, const std::vector<const std::vector<Operation>*>& forward,
                               const std::set<TensorId>& trained) {
  Finder finder(graph, trained);
  for (const std::vector<Operation>* operations : forward) {
    for (const Operation& operation : *operations) {
      finder.visit(operation);
    }
  }
  std::vector<Block> blocks = finder.finish();
  std::erase_if(blocks, [](const Block& b) { return b.parameters() + b.moving == 0; });
  return blocks;
}

}  // namespace poprun
