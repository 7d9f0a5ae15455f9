#include <cmath>

#include <fmt/format.h>

#include "replica/models/layers/layers.h"
#include "replica/models/layers/model.h"
#include "replica/models/layers/transformer.h"

/// T5 (Raffel et al., "Exploring the limits of transfer learning with a unified text-to-text transformer", 2020),
/// version 1.0: an encoder and a decoder with relative position biases. The parameters have the names and shapes of
/// Hugging Face's T5ForConditionalGeneration. The output layer is tied to the embedding that encoder and decoder share.
/// Dropout is applied where Hugging Face applies it, at a single rate.
///
///   tokens i32[B,S]           the encoder's input
///   attention_mask i32[B,S]   0 hides a token of the encoder's input; if absent, no token is hidden
///   labels i32[B,T]           the decoder's output; negative ids, such as -100, do not count; T may differ from S
///
/// The decoder reads the labels, shifted by one position behind the start token, id 0. Labels below 0 are read as id 0.
namespace poprun::models::t5 {
namespace {

constexpr double kEpsilon = 1e-6;
constexpr std::int64_t kBuckets = 32;
constexpr std::int64_t kDistance = 128;  ///< From here on, all distances have the same bias.

/// H features, h heads of d features, I features of the feed-forward network.
struct Sizes {
  layers::TransformerSizes base;
  std::int64_t decoder_layers;
  std::int64_t head_features;
  std::int64_t intermediate;

  [[nodiscard]] std::int64_t inner() const { return base.heads * head_features; }
};

/// Returns 1 / sqrt(n), the initial standard deviation of weights that sum over n features.
double deviation(std::int64_t n) {
  return 1 / std::sqrt(static_cast<double>(n));
}

TensorId dense(Builder& builder, const std::string& name, TensorId x, std::int64_t features, double deviation) {
  return layers::dense(builder, name, x, {.features = features, .deviation = deviation, .bias = false});
}

/// Keys and values come from `memory`: x itself, or the encoder's output.
struct Attended {
  TensorId memory{};
  std::optional<TensorId> bias = {};  ///< Relative position bias [1,h,T,S].
  std::optional<TensorId> mask = {};
  bool causal = false;
};

/// Maps x [B,T,H] to [B,T,H]. Scores are not divided by sqrt(d): initial weights make up for it.
TensorId attention(Builder& builder, const std::string& name, TensorId x, const Attended& to, const Sizes& m) {
  const auto heads = [&](const std::string& part, TensorId from, double deviation) {
    const TensorId y = dense(builder, name + part, from, m.inner(), deviation);
    return layers::split_heads(builder, name + part, y, m.base.heads);
  };
  const TensorId query = heads(".q", x, deviation(m.base.hidden * m.head_features));
  const TensorId key = heads(".k", to.memory, deviation(m.base.hidden));
  const TensorId value = heads(".v", to.memory, deviation(m.base.hidden));
  const TensorId y = layers::attention(builder, name,
                                       {.query = query,
                                        .key = key,
                                        .value = value,
                                        .causal = to.causal,
                                        .mask = to.mask,
                                        .dropout = m.base.dropout,
                                        .bias = to.bias,
                                        .scale = 1.0});
  return dense(builder, name + ".o", y, m.base.hidden, deviation(m.inner()));
}

/// Adds dropout of y, the result of sublayer `name`, to x.
TensorId add_residual(Builder& builder, const std::string& name, TensorId x, TensorId y, const Sizes& m) {
  y = layers::dropout(builder, name + ".dropout", y, m.base.dropout);
  return builder.add_one("add", {x, y}, {}, name + ".residual");
}

TensorId feed_forward(Builder& builder, const std::string& name, TensorId x, const Sizes& m) {
  const std::string inner = name + ".DenseReluDense";
  TensorId y = layers::rms_norm(builder, name + ".layer_norm", x, kEpsilon);
  y = dense(builder, inner + ".wi", y, m.intermediate, deviation(m.base.hidden));
  y = layers::relu(builder, inner + ".act", y);
  y = layers::dropout(builder, inner + ".dropout", y, m.base.dropout);
  y = dense(builder, inner + ".wo", y, m.base.hidden, deviation(m.intermediate));
  return add_residual(builder, name, x, y, m);
}

/// Returns the bias [1,h,T,T] that all layers of a stack add to their scores. `name` is the stack's.
TensorId position_bias(Builder& builder, const std::string& name, std::int64_t T, bool both, const Sizes& m) {
  const std::string prefix = name + ".block.0.layer.0.SelfAttention.relative_attention_bias";
  const TensorId table =
      layers::embedding_table(builder, prefix + ".weight", kBuckets, m.base.heads, deviation(m.base.hidden));
  const TensorId buckets = builder.add_one("relative_buckets", {},
                                           {{"queries", T},
                                            {"keys", T},
                                            {"buckets", kBuckets},
                                            {"distance", kDistance},
                                            {"both_directions", std::int64_t{both ? 1 : 0}}},
                                           prefix + ".buckets");
  const TensorId y = layers::embed(builder, prefix, table, buckets);
  const TensorId heads = builder.add_one("transpose", {y}, {{"perm", Shape{2, 0, 1}}}, prefix + ".heads");
  return layers::reshape(builder, prefix + ".bias", heads, {1, m.base.heads, T, T});
}

/// The beginning of a stack: embedded tokens [B,T,H], and the bias of its layers.
struct Stack {
  TensorId x{};
  TensorId bias{};
};

Stack begin(Builder& builder, const std::string& name, TensorId words, TensorId tokens, bool both, const Sizes& m) {
  TensorId x = layers::embed(builder, name + ".embed_tokens", words, tokens);
  x = layers::dropout(builder, name + ".dropout", x, m.base.dropout);
  if (!builder.status()) {
    return {};
  }
  return {.x = x, .bias = position_bias(builder, name, builder.type(tokens).shape[1], both, m)};
}

TensorId end(Builder& builder, const std::string& name, TensorId x, const Sizes& m) {
  x = layers::rms_norm(builder, name + ".final_layer_norm", x, kEpsilon);
  return layers::dropout(builder, name + ".final_dropout", x, m.base.dropout);
}

/// Returns the encoder's output [B,S,H].
TensorId encode(Builder& builder, TensorId words, TensorId tokens, std::optional<TensorId> mask, const Sizes& m) {
  const Stack stack = begin(builder, "encoder", words, tokens, /*both=*/true, m);
  TensorId x = stack.x;
  for (std::int64_t l = 0; l < m.base.layers; ++l) {
    const std::string name = fmt::format("encoder.block.{}", l);
    builder.layer(name);
    const TensorId y = layers::rms_norm(builder, name + ".layer.0.layer_norm", x, kEpsilon);
    const TensorId mixed = attention(builder, name + ".layer.0.SelfAttention", y,
                                     {.memory = y, .bias = stack.bias, .mask = mask, .causal = false}, m);
    x = add_residual(builder, name + ".layer.0", x, mixed, m);
    x = feed_forward(builder, name + ".layer.1", x, m);
  }
  return end(builder, "encoder", x, m);
}

/// Returns the decoder's input i32[B,T]: the start token, then all labels but the last.
TensorId shifted(Builder& builder, TensorId labels) {
  if (!builder.status()) {
    return labels;
  }
  const std::string name = "decoder.input";
  const Shape s = builder.type(labels).shape;
  const auto cast = [&](TensorId x, const char* to, const std::string& part) {
    return builder.add_one("cast", {x}, {{"to", std::string{to}}}, name + part);
  };
  const TensorId zeros = builder.add_one("fill", {}, {{"shape", Shape{s[0], 1}}, {"value", 0.0}}, name + ".zeros");
  const TensorId start = cast(zeros, "i32", ".start");
  if (s[1] == 1) {
    return start;
  }
  const TensorId numbers = cast(labels, "f32", ".numbers");
  builder.keep_f32(numbers);
  const TensorId clipped = builder.add_one("clip", {numbers}, {{"min", 0.0}}, name + ".clipped");
  builder.keep_f32(clipped);
  const TensorId ids = cast(clipped, "i32", ".ids");
  const TensorId kept = builder.add_one(
      "slice", {ids}, {{"axis", std::int64_t{1}}, {"begin", std::int64_t{0}}, {"count", s[1] - 1}}, name + ".kept");
  return builder.add_one("concat", {start, kept}, {{"axis", std::int64_t{1}}}, name);
}

/// Returns the decoder's output [B,T,H].
TensorId decode(Builder& builder, TensorId words, TensorId tokens, TensorId memory, std::optional<TensorId> mask,
                const Sizes& m) {
  const Stack stack = begin(builder, "decoder", words, tokens, /*both=*/false, m);
  TensorId x = stack.x;
  for (std::int64_t l = 0; l < m.decoder_layers; ++l) {
    const std::string name = fmt::format("decoder.block.{}", l);
    builder.layer(name);
    TensorId y = layers::rms_norm(builder, name + ".layer.0.layer_norm", x, kEpsilon);
    y = attention(builder, name + ".layer.0.SelfAttention", y, {.memory = y, .bias = stack.bias, .causal = true}, m);
    x = add_residual(builder, name + ".layer.0", x, y, m);
    y = layers::rms_norm(builder, name + ".layer.1.layer_norm", x, kEpsilon);
    y = attention(builder, name + ".layer.1.EncDecAttention", y, {.memory = memory, .mask = mask}, m);
    x = add_residual(builder, name + ".layer.1", x, y, m);
    x = feed_forward(builder, name + ".layer.2", x, m);
  }
  return end(builder, "decoder", x, m);
}

/// Returns the dataset's labels. Refuses labels that are not i32[B,T].
TensorId labels_of(Builder& builder, const ModelInputs& inputs, TensorId tokens) {
  const TensorId labels = inputs.find(builder, "labels");
  if (builder.status()) {
    const TensorType& type = builder.type(labels);
    if (type.data != DataType::kI32 || type.shape.size() != 2 || type.shape[0] != builder.type(tokens).shape[0]) {
      builder.refuse({ErrorCode::kUsage, fmt::format("data.source: the model needs labels of type i32[B,T], the ids of "
                                                     "the decoder's output, but the dataset has {}",
                                                     to_text(type))});
    }
  }
  return labels;
}

ModelOutputs build(Builder& builder, const ModelInputs& inputs) {
  const Sizes m{.base = layers::transformer_sizes(inputs),
                .decoder_layers = inputs.size("decoder-layers"),
                .head_features = inputs.size("head-features"),
                .intermediate = inputs.size("intermediate")};
  const TensorId tokens = layers::tokens(builder, inputs, m.base);
  const TensorId labels = labels_of(builder, inputs, tokens);
  if (!builder.status()) {
    return {};
  }
  builder.layer("shared", /*counted=*/false);
  const std::optional<TensorId> mask = layers::attention_mask(builder, inputs, tokens);
  const TensorId words = layers::embedding_table(builder, "shared.weight", m.base.vocabulary, m.base.hidden, 1);
  const TensorId memory = encode(builder, words, tokens, mask, m);
  builder.layer("decoder.embed_tokens", /*counted=*/false);
  TensorId x = decode(builder, words, shifted(builder, labels), memory, mask, m);
  builder.layer("lm_head", /*counted=*/false);
  const TensorId scale =
      builder.add_one("fill", {}, {{"shape", Shape{}}, {"value", deviation(m.base.hidden)}}, "lm_head.scale");
  x = builder.add_one("mul", {x, scale}, {}, "lm_head.scaled");
  const TensorId logits = builder.add_one("linear", {x, words}, {}, "lm_head");
  return layers::score(builder, logits, inputs, "loss");
}

struct Defaults {
  std::int64_t layers;
  std::int64_t hidden;
  std::int64_t heads;
  std::int64_t head_features = 64;
  std::int64_t intermediate;
  std::int64_t vocabulary = 32'128;
  std::int64_t length = 512;  ///< Tokens of the encoder's input in the sample.
  std::int64_t target = 114;  ///< Tokens of the decoder's output in the sample, as in the paper's pretraining.
};

Model t5(const std::string& name, const Defaults& d) {
  return {.name = name,
          .description =
              fmt::format("encoder and decoder, {} layers each, hidden {}, {} heads", d.layers, d.hidden, d.heads),
          .sizes = {{"decoder-layers", d.layers},
                    {"head-features", d.head_features},
                    {"heads", d.heads},
                    {"hidden", d.hidden},
                    {"intermediate", d.intermediate},
                    {"layers", d.layers},
                    {"sequence-length", d.length},
                    {"vocabulary", d.vocabulary}},
          .sample = {.tensors = {{"tokens", DataType::kI32, {d.length}}, {"labels", DataType::kI32, {d.target}}}},
          .has_dropout = true,
          .build = build};
}

}  // namespace

std::vector<Model> models() {
  return {t5("t5-mini", {.layers = 2,
                         .hidden = 64,
                         .heads = 4,
                         .head_features = 16,
                         .intermediate = 128,
                         .vocabulary = 257,
                         .length = 64,
                         .target = 32}),
          t5("t5-small", {.layers = 6, .hidden = 512, .heads = 8, .intermediate = 2048}),
          t5("t5-base", {.layers = 12, .hidden = 768, .heads = 12, .intermediate = 3072}),
          t5("t5-large", {.layers = 24, .hidden = 1024, .heads = 16, .intermediate = 4096})};
}

}  // namespace poprun::models::t5
