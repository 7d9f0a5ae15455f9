#include <fmt/format.h>

#include "replica/models/layers/transformer.h"
#include "replica/models/model.h"

/// BERT (Devlin et al., 2018) with its pretraining heads, masked language model and next sentence,
/// with the parameter names and shapes of Hugging Face's BertForPreTraining. The decoder is the
/// word embedding. No dropout; every token sees every other.
///
///   tokens, segments i32[B,T]    positions, labels i32[B,M]: where masks stand and what they hide;
///                                labels outside the vocabulary, as -1, do not count
///   next_sentence i32[B]         0 or 1; -1: does not count
///
/// The loss is the sum of both heads' means; correct, count and prediction are those of
/// the masks.
namespace poprun {
namespace {

constexpr double kEpsilon = 1e-12;

struct Bert {
  std::int64_t layers;
  std::int64_t hidden;
  std::int64_t heads;
  std::int64_t vocabulary;
  std::int64_t sequence_length;
};

Bert sizes_in(const ModelInputs& inputs) {
  return {.layers = inputs.size("layers"),
          .hidden = inputs.size("hidden"),
          .heads = inputs.size("heads"),
          .vocabulary = inputs.size("vocabulary"),
          .sequence_length = inputs.size("sequence-length")};
}

/// The sum of three embeddings, normalised: [B,T,H].
TensorId embeddings(Builder& builder, const Bert& m, TensorId words, TensorId tokens,
                    TensorId segments) {
  const std::string name = "bert.embeddings";
  const std::int64_t T = builder.type(tokens).shape[1];
  const TensorId places = layers::embedding_table(builder, name + ".position_embeddings.weight",
                                                  m.sequence_length, m.hidden);
  const TensorId types =
      layers::embedding_table(builder, name + ".token_type_embeddings.weight", 2, m.hidden);
  TensorId x =
      builder.add_one("add",
                      {layers::embed(builder, name + ".word_embeddings", words, tokens),
                       layers::embed(builder, name + ".token_type_embeddings", types, segments)},
                      {}, name + ".typed");
  x = builder.add_one("add",
                      {x, layers::positions(builder, name + ".position_embeddings", places, T)}, {},
                      name + ".placed");
  return layers::layer_norm(builder, name + ".LayerNorm", x, kEpsilon);
}

/// dense(y), added to x and normalised.
TensorId add_and_norm(Builder& builder, const std::string& name, TensorId x, TensorId y,
                      const Bert& m) {
  y = layers::dense(builder, name + ".dense", y, {.features = m.hidden});
  x = builder.add_one("add", {x, y}, {}, name + ".residual");
  return layers::layer_norm(builder, name + ".LayerNorm", x, kEpsilon);
}

TensorId layer(Builder& builder, const std::string& name, TensorId x, const Bert& m) {
  const std::string self = name + ".attention.self";
  const auto heads = [&](const std::string& part) {
    const TensorId y = layers::dense(builder, self + part, x, {.features = m.hidden});
    return layers::split_heads(builder, self + part, y, m.heads);
  };
  const TensorId query = heads(".query");
  const TensorId key = heads(".key");
  const TensorId mixed = layers::attention(
      builder, self, {.query = query, .key = key, .value = heads(".value"), .causal = false});
  x = add_and_norm(builder, name + ".attention.output", x, mixed, m);
  TensorId y = layers::dense(builder, name + ".intermediate.dense", x, {.features = 4 * m.hidden});
  y = builder.add_one("gelu", {y}, {}, name + ".intermediate");
  return add_and_norm(builder, name + ".output", x, y, m);
}

/// Of what the masks hide.
ModelOutputs masked_tokens(Builder& builder, const Bert& m, TensorId x, TensorId words,
                           const ModelInputs& inputs) {
  const std::string name = "cls.predictions";
  x = builder.add_one("gather", {x, inputs.find(builder, "positions")},
                      {{"axis", std::int64_t{1}}, {"batch_dims", std::int64_t{1}}},
                      name + ".masked");
  x = layers::dense(builder, name + ".transform.dense", x, {.features = m.hidden});
  x = builder.add_one("gelu", {x}, {}, name + ".transform");
  x = layers::layer_norm(builder, name + ".transform.LayerNorm", x, kEpsilon);
  const TensorId bias = builder.variable(
      name + ".bias", {DataType::kF32, {m.vocabulary}, Layout::kRowMajor}, Role::kParameter, {});
  const TensorId logits = builder.add_one("linear", {x, words, bias}, {}, name + ".decoder");
  const auto outputs =
      builder.add("softmax_cross_entropy", {logits, inputs.find(builder, "labels")}, {},
                  {name + ".loss", "correct", "count"});
  return {.loss = outputs[0], .correct = outputs[1], .count = outputs[2], .prediction = logits};
}

/// Loss of whether the second segment follows the first, told from the first token.
TensorId next_sentence(Builder& builder, const Bert& m, TensorId x, const ModelInputs& inputs) {
  const std::int64_t B = builder.type(x).shape[0];
  x = builder.add_one(
      "slice", {x},
      {{"axis", std::int64_t{1}}, {"begin", std::int64_t{0}}, {"count", std::int64_t{1}}},
      "bert.pooler.first");
  x = layers::reshape(builder, "bert.pooler.token", x, {B, m.hidden});
  x = layers::dense(builder, "bert.pooler.dense", x, {.features = m.hidden});
  x = builder.add_one("tanh", {x}, {}, "bert.pooler");
  const std::string name = "cls.seq_relationship";
  const TensorId logits = layers::dense(builder, name, x, {.features = 2});
  return builder.add("softmax_cross_entropy", {logits, inputs.find(builder, "next_sentence")}, {},
                     {name + ".loss", name + ".correct", name + ".count"})[0];
}

ModelOutputs build(Builder& builder, const ModelInputs& inputs) {
  const Bert m = sizes_in(inputs);
  const TensorId tokens = inputs.find(builder, "tokens");
  const TensorId segments = inputs.find(builder, "segments");
  if (builder.status()) {
    layers::check_transformer(builder, {m.hidden, m.heads, m.sequence_length}, tokens);
  }
  if (!builder.status()) {
    return {};
  }
  const TensorId words = layers::embedding_table(builder, "bert.embeddings.word_embeddings.weight",
                                                 m.vocabulary, m.hidden);
  TensorId x = embeddings(builder, m, words, tokens, segments);
  for (std::int64_t l = 0; l < m.layers; ++l) {
    x = layer(builder, fmt::format("bert.encoder.layer.{}", l), x, m);
  }
  ModelOutputs outputs = masked_tokens(builder, m, x, words, inputs);
  if (!builder.status()) {
    return {};
  }
  const TensorId sentences = next_sentence(builder, m, x, inputs);
  outputs.loss = builder.add_one("add", {outputs.loss, sentences}, {}, "loss");
  return outputs;
}

/// Devlin et al.'s vocabulary, longest sequences, and masks of those (max_predictions_per_seq).
Model bert(const std::string& name, std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
  constexpr std::int64_t kLength = 512;
  constexpr std::int64_t kMasks = 76;
  return {
      .name = name,
      .description = fmt::format("masked language model and next sentence, {} layers, hidden {}, "
                                 "{} heads",
                                 layers, hidden, heads),
      .sizes = {{"heads", heads},
                {"hidden", hidden},
                {"layers", layers},
                {"sequence-length", kLength},
                {"vocabulary", 30522}},
      .sample = {.tensors = {{"tokens", DataType::kI32, {kLength}},
                             {"segments", DataType::kI32, {kLength}},
                             {"positions", DataType::kI32, {kMasks}},
                             {"labels", DataType::kI32, {kMasks}},
                             {"next_sentence", DataType::kI32, {}}}},
      .build = build};
}

}  // namespace

std::vector<Model> bert_models() {
  return {bert("bert-base", 12, 768, 12), bert("bert-large", 24, 1024, 16)};
}

}  // namespace poprun
