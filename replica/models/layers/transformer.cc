#include "replica/models/layers/transformer.h"

#include <cmath>

#include <fmt/format.h>

#include "replica/models/layers/layers.h"

namespace poprun::layers {
namespace {

TensorId weight(Builder& builder, const std::string& name, Shape shape, const Initialiser& initialiser) {
  return builder.variable(name, {DataType::kF32, std::move(shape), Layout::kRowMajor}, Role::kParameter, initialiser);
}

/// Returns the size of the last dimension. If x has no dimensions, returns 1, and shape inference refuses x later.
std::int64_t features_of(const Builder& builder, TensorId x) {
  const Shape& shape = builder.type(x).shape;
  return shape.empty() ? 1 : shape.back();
}

}  // namespace

TransformerSizes transformer_sizes(const ModelInputs& inputs) {
  return {.layers = inputs.size("layers"),
          .hidden = inputs.size("hidden"),
          .heads = inputs.size("heads"),
          .vocabulary = inputs.size("vocabulary"),
          .sequence_length = inputs.size("sequence-length"),
          .dropout = inputs.training ? inputs.dropout : 0};
}

void check_heads(Builder& builder, std::int64_t heads, std::int64_t hidden) {
  if (hidden % heads != 0) {
    builder.refuse(
        {ErrorCode::kUsage, fmt::format("model.heads = {} does not divide model.hidden = {}", heads, hidden)});
  }
}

TensorId tokens(Builder& builder, const ModelInputs& inputs, const TransformerSizes& sizes) {
  const TensorId tokens = inputs.find(builder, "tokens");
  if (!builder.status()) {
    return tokens;
  }
  check_heads(builder, sizes.heads, sizes.hidden);
  const TensorType& type = builder.type(tokens);
  if (type.data != DataType::kI32 || type.shape.size() != 2) {
    builder.refuse(
        {ErrorCode::kUsage,
         fmt::format("data.source: the model needs tokens of type i32[B,T], but the dataset has {}", to_text(type))});
  } else if (type.shape[1] > sizes.sequence_length) {
    builder.refuse({ErrorCode::kUsage,
                    fmt::format("data.source: the dataset has sequences of {0} tokens, but the model has positions "
                                "for {1}; set model.sequence-length = {0} or shorten the sequences "
                                "(data.sequence-length)",
                                type.shape[1], sizes.sequence_length)});
  }
  if (inputs.classes > sizes.vocabulary) {
    builder.refuse({ErrorCode::kUsage, fmt::format("data.source: the dataset has token ids up to {}, but the model's "
                                                   "vocabulary has {} tokens; set model.vocabulary = {} or more",
                                                   inputs.classes - 1, sizes.vocabulary, inputs.classes)});
  }
  return tokens;
}

void check_next_tokens(Builder& builder, const ModelInputs& inputs, TensorId tokens) {
  const TensorId labels = inputs.scored() ? inputs.find(builder, "labels") : tokens;
  if (builder.status() && builder.type(labels) != builder.type(tokens)) {
    builder.refuse(
        {ErrorCode::kUsage, fmt::format("data.source: the model needs labels of type {}, one per token, but the "
                                        "dataset has {}; check that data.task = next-token",
                                        to_text(builder.type(tokens)), to_text(builder.type(labels)))});
  }
}

std::optional<TensorId> attention_mask(Builder& builder, const ModelInputs& inputs, TensorId tokens) {
  if (!inputs.has("attention_mask") || !builder.status()) {
    return std::nullopt;
  }
  const TensorId kept = inputs.find(builder, "attention_mask");
  if (builder.type(kept) != builder.type(tokens)) {
    builder.refuse(
        {ErrorCode::kUsage, fmt::format("data.source: the model needs attention_mask of type {}, one per token, "
                                        "but the dataset has {}",
                                        to_text(builder.type(tokens)), to_text(builder.type(kept)))});
    return std::nullopt;
  }
  return builder.add_one("attention_mask", {kept}, {}, "attention_mask.scores");
}

TensorId embedding_table(Builder& builder, const std::string& name, std::int64_t rows, std::int64_t features,
                         double deviation) {
  return weight(builder, name, {rows, features}, {.distribution = Distribution::kNormal, .value = deviation});
}

TensorId dropout(Builder& builder, const std::string& name, TensorId x, double rate) {
  return rate == 0 ? x : builder.add_one("dropout", {x}, {{"rate", rate}, {"key", name}}, name);
}

TensorId embed(Builder& builder, const std::string& name, TensorId table, TensorId ids) {
  return builder.add_one("gather", {table, ids}, {{"axis", std::int64_t{0}}}, name);
}

TensorId positions(Builder& builder, const std::string& name, TensorId table, std::int64_t T) {
  return builder.add_one("slice", {table}, {{"axis", std::int64_t{0}}, {"begin", std::int64_t{0}}, {"count", T}}, name);
}

TensorId layer_norm(Builder& builder, const std::string& name, TensorId x, double epsilon) {
  if (!builder.status()) {
    return x;
  }
  const std::int64_t features = features_of(builder, x);
  const TensorId w = weight(builder, name + ".weight", {features}, {.value = 1});
  const TensorId b = weight(builder, name + ".bias", {features}, {});
  return builder.add("layer_norm", {x, w, b}, {{"epsilon", epsilon}}, {name, name + ".mean", name + ".variance"})[0];
}

TensorId rms_norm(Builder& builder, const std::string& name, TensorId x, double epsilon) {
  if (!builder.status()) {
    return x;
  }
  const TensorId w = weight(builder, name + ".weight", {features_of(builder, x)}, {.value = 1});
  return builder.add("rms_norm", {x, w}, {{"epsilon", epsilon}}, {name, name + ".square"})[0];
}

TensorId dense(Builder& builder, const std::string& name, TensorId x, const DenseOptions& options) {
  if (!builder.status()) {
    return x;
  }
  const std::int64_t in = features_of(builder, x);
  const std::int64_t out = options.features;
  const TensorId w = weight(builder, name + ".weight", options.input_major ? Shape{in, out} : Shape{out, in},
                            {.distribution = Distribution::kNormal, .value = options.deviation});
  std::vector<TensorId> operands = {x, w};
  if (options.bias) {
    operands.push_back(weight(builder, name + ".bias", {out}, {}));
  }
  return builder.add_one("linear", operands, {{"input_major", std::int64_t{options.input_major ? 1 : 0}}}, name);
}

TensorId split_heads(Builder& builder, const std::string& name, TensorId x, std::int64_t heads) {
  if (!builder.status()) {
    return x;
  }
  const Shape& s = builder.type(x).shape;
  x = reshape(builder, name + ".split", x, {s[0], s[1], heads, s[2] / heads});
  return builder.add_one("transpose", {x}, {{"perm", Shape{0, 2, 1, 3}}}, name + ".heads");
}

TensorId attention(Builder& builder, const std::string& name, const AttentionInputs& inputs) {
  if (!builder.status()) {
    return inputs.query;
  }
  const Shape s = builder.type(inputs.query).shape;
  const Shape k = builder.type(inputs.key).shape;
  // Heads that share keys and values are treated as one head with more queries.
  const bool grouped = s[1] != k[1];
  const Shape rows = {s[0], k[1], s[1] / k[1] * s[2], s[3]};
  const TensorId query = grouped ? reshape(builder, name + ".grouped", inputs.query, rows) : inputs.query;
  TensorId scores = builder.add_one("matmul", {query, inputs.key},
                                    {{"transpose_b", std::int64_t{1}},
                                     {"scale", inputs.scale.value_or(1.0 / std::sqrt(static_cast<double>(s.back())))}},
                                    name + ".scores");
  if (grouped) {
    scores = reshape(builder, name + ".ungrouped", scores, {s[0], s[1], s[2], k[2]});
  }
  if (inputs.bias) {
    scores = builder.add_one("add", {scores, *inputs.bias}, {}, name + ".biased");
  }
  if (inputs.causal) {
    const TensorId mask = builder.add_one("causal_mask", {}, {{"size", s[2]}}, name + ".mask");
    scores = builder.add_one("add", {scores, mask}, {}, name + ".masked");
  }
  if (inputs.mask) {
    scores = builder.add_one("add", {scores, *inputs.mask}, {}, name + ".kept");
  }
  TensorId weights = builder.add_one("softmax", {scores}, {}, name + ".weights");
  weights = dropout(builder, name + ".attn_dropout", weights, inputs.dropout);
  if (grouped) {
    weights = reshape(builder, name + ".grouped_weights", weights, {rows[0], rows[1], rows[2], k[2]});
  }
  TensorId y = builder.add_one("matmul", {weights, inputs.value}, {}, name + ".mixed");
  if (grouped) {
    y = reshape(builder, name + ".ungrouped_mixed", y, s);
  }
  y = builder.add_one("transpose", {y}, {{"perm", Shape{0, 2, 1, 3}}}, name + ".tokens");
  return reshape(builder, name + ".joined", y, {s[0], s[2], s[1] * s[3]});
}

}  // namespace poprun::layers
