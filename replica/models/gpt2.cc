#include <cmath>

#include <fmt/format.h>

#include "replica/models/layers/layers.h"
#include "replica/models/layers/model.h"
#include "replica/models/layers/transformer.h"

/// GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019) as a language model. The
/// parameters have the names and shapes of Hugging Face's GPT2LMHeadModel. The output layer is tied to the token
/// embedding. Dropout is applied where Hugging Face applies it, at a single rate.
///
///   tokens i32[B,T]
///   labels i32[B,T]           the next tokens; ids outside the vocabulary, such as -1, do not count
///   attention_mask i32[B,T]   0 hides a token; if absent, no token is hidden
namespace poprun::models::gpt2 {
namespace {

constexpr double kEpsilon = 1e-5;

using Sizes = layers::TransformerSizes;

/// Returns the initial standard deviation of weights that feed the residual stream. It decreases with depth.
double residual_deviation(const Sizes& m) {
  return layers::kTransformerDeviation / std::sqrt(2.0 * static_cast<double>(m.layers));
}

/// Adds the projection whose result is added to the residual stream.
TensorId project(Builder& builder, const std::string& name, TensorId x, const Sizes& m) {
  x = layers::dense(builder, name + ".c_proj", x,
                    {.features = m.hidden, .input_major = true, .deviation = residual_deviation(m)});
  return layers::dropout(builder, name + ".resid_dropout", x, m.dropout);
}

/// Maps x [B,T,H] to [B,T,H]. One product computes queries, keys and values; one transposition splits them into heads.
TensorId self_attention(Builder& builder, const std::string& name, TensorId x, const Sizes& m,
                        std::optional<TensorId> mask) {
  const TensorId qkv = layers::dense(builder, name + ".c_attn", x, {.features = 3 * m.hidden, .input_major = true});
  if (!builder.status()) {
    return x;
  }
  const Shape s = builder.type(qkv).shape;
  const TensorId cut = layers::reshape(builder, name + ".cut", qkv, {s[0], s[1], 3, m.heads, m.hidden / m.heads});
  const TensorId heads = builder.add_one("transpose", {cut}, {{"perm", Shape{2, 0, 3, 1, 4}}}, name + ".heads");
  const auto parts = builder.add("split", {heads}, {{"axis", std::int64_t{0}}, {"sizes", Shape{1, 1, 1}}},
                                 {name + ".query", name + ".key", name + ".value"});
  const Shape one = {s[0], m.heads, s[1], m.hidden / m.heads};
  const TensorId y = layers::attention(builder, name,
                                       {.query = layers::reshape(builder, name + ".queries", parts[0], one),
                                        .key = layers::reshape(builder, name + ".keys", parts[1], one),
                                        .value = layers::reshape(builder, name + ".values", parts[2], one),
                                        .causal = true,
                                        .mask = mask,
                                        .dropout = m.dropout});
  return project(builder, name, y, m);
}

TensorId feed_forward(Builder& builder, const std::string& name, TensorId x, const Sizes& m) {
  x = layers::dense(builder, name + ".c_fc", x, {.features = 4 * m.hidden, .input_major = true});
  x = builder.add_one("gelu_tanh", {x}, {}, name + ".act");
  return project(builder, name, x, m);
}

TensorId block(Builder& builder, const std::string& name, TensorId x, const Sizes& m, std::optional<TensorId> mask) {
  TensorId y = layers::layer_norm(builder, name + ".ln_1", x, kEpsilon);
  y = self_attention(builder, name + ".attn", y, m, mask);
  x = builder.add_one("add", {x, y}, {}, name + ".attn.residual");
  y = layers::layer_norm(builder, name + ".ln_2", x, kEpsilon);
  y = feed_forward(builder, name + ".mlp", y, m);
  return builder.add_one("add", {x, y}, {}, name + ".mlp.residual");
}

ModelOutputs build(Builder& builder, const ModelInputs& inputs) {
  const Sizes m = layers::transformer_sizes(inputs);
  const TensorId tokens = layers::tokens(builder, inputs, m);
  layers::check_next_tokens(builder, inputs, tokens);
  if (!builder.status()) {
    return {};
  }
  const std::string name = "transformer";
  builder.layer(name + ".wte", /*counted=*/false);
  const std::optional<TensorId> mask = layers::attention_mask(builder, inputs, tokens);
  const std::int64_t T = builder.type(tokens).shape[1];
  const TensorId wte = layers::embedding_table(builder, name + ".wte.weight", m.vocabulary, m.hidden);
  const TensorId wpe = layers::embedding_table(builder, name + ".wpe.weight", m.sequence_length, m.hidden);
  TensorId x = builder.add_one(
      "add", {layers::embed(builder, name + ".wte", wte, tokens), layers::positions(builder, name + ".wpe", wpe, T)},
      {}, name + ".embedded");
  x = layers::dropout(builder, name + ".drop", x, m.dropout);
  for (std::int64_t l = 0; l < m.layers; ++l) {
    const std::string layer = fmt::format("{}.h.{}", name, l);
    builder.layer(layer);
    x = block(builder, layer, x, m, mask);
  }
  builder.layer("lm_head", /*counted=*/false);
  x = layers::layer_norm(builder, name + ".ln_f", x, kEpsilon);
  const TensorId logits = builder.add_one("linear", {x, wte}, {}, "lm_head");
  return layers::score(builder, logits, inputs, "loss");
}

/// Returns GPT-2 with Radford et al.'s context and vocabulary.
Model gpt2(const std::string& name, std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
  constexpr std::int64_t kContext = 1024;
  return {.name = name,
          .description = fmt::format("language model, {} layers, hidden {}, {} heads", layers, hidden, heads),
          .sizes = {{"heads", heads},
                    {"hidden", hidden},
                    {"layers", layers},
                    {"sequence-length", kContext},
                    {"vocabulary", 50257}},
          .sample = {.tensors = {{"tokens", DataType::kI32, {kContext}}, {"labels", DataType::kI32, {kContext}}}},
          .has_dropout = true,
          .build = build};
}

}  // namespace

std::vector<Model> models() {
  return {gpt2("gpt2", 12, 768, 12), gpt2("gpt2-medium", 24, 1024, 16), gpt2("gpt2-large", 36, 1280, 20),
          gpt2("gpt2-xl", 48, 1600, 25)};
}

}  // namespace poprun::models::gpt2
