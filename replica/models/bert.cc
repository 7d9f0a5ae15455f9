#include <fmt/format.h>

#include "replica/models/layers/layers.h"
#include "replica/models/layers/model.h"
#include "replica/models/layers/transformer.h"

/// BERT (Devlin et al., 2018) with its two pretraining heads (masked language model, next sentence), or with the head
/// for SQuAD. The parameters have the names and shapes of Hugging Face's BertForPreTraining or
/// BertForQuestionAnswering. The decoder is tied to the word embedding. Dropout is applied where Hugging Face applies
/// it, at a single rate. Every token attends to all tokens. The pretraining heads read:
///
///   tokens i32[B,T]
///   labels i32[B,M]           ids of the masked tokens; ids outside the vocabulary, such as -1, do not count
///   positions i32[B,M]        positions of the masked tokens; if absent, every token has a label (M = T), and
///                             attention_mask is required
///   segments i32[B,T]         0 or 1; if absent, all are 0
///   attention_mask i32[B,T]   0 hides a token; if absent, no token is hidden
///   next_sentence i32[B]      0 or 1; -1 does not count; if absent, the head is left out, as in Hugging Face's
///                             BertForMaskedLM
///
/// The loss is the sum of the two heads' mean losses; `correct`, `count` and `prediction` cover only the masked tokens.
///
/// The head for SQuAD reads tokens, segments and attention_mask, and:
///
///   labels i32[B,2]           first and last position of the answer; positions outside the sequence do not count
///
/// Its loss is the mean cross-entropy of both positions over all positions of the sequence; the prediction is [B,2,T].
namespace poprun::models::bert {
namespace {

constexpr double kEpsilon = 1e-12;

using Sizes = layers::TransformerSizes;

/// Returns the normalised sum of three embeddings: [B,T,H].
TensorId embeddings(Builder& builder, const Sizes& m, TensorId words, TensorId tokens, const ModelInputs& inputs) {
  const std::string name = "bert.embeddings";
  const std::int64_t T = builder.type(tokens).shape[1];
  const TensorId places =
      layers::embedding_table(builder, name + ".position_embeddings.weight", m.sequence_length, m.hidden);
  const TensorId types = layers::embedding_table(builder, name + ".token_type_embeddings.weight", 2, m.hidden);
  // Without segments, all tokens get the embedding of segment 0.
  const std::string typed = name + ".token_type_embeddings";
  const TensorId type = inputs.has("segments") ? layers::embed(builder, typed, types, inputs.find(builder, "segments"))
                                               : layers::positions(builder, typed, types, 1);
  TensorId x = builder.add_one("add", {layers::embed(builder, name + ".word_embeddings", words, tokens), type}, {},
                               name + ".typed");
  x = builder.add_one("add", {x, layers::positions(builder, name + ".position_embeddings", places, T)}, {},
                      name + ".placed");
  x = layers::layer_norm(builder, name + ".LayerNorm", x, kEpsilon);
  return layers::dropout(builder, name + ".dropout", x, m.dropout);
}

/// Applies a dense layer to y, adds the result to x and normalises the sum.
TensorId add_and_norm(Builder& builder, const std::string& name, TensorId x, TensorId y, const Sizes& m) {
  y = layers::dense(builder, name + ".dense", y, {.features = m.hidden});
  y = layers::dropout(builder, name + ".dropout", y, m.dropout);
  x = builder.add_one("add", {x, y}, {}, name + ".residual");
  return layers::layer_norm(builder, name + ".LayerNorm", x, kEpsilon);
}

TensorId layer(Builder& builder, const std::string& name, TensorId x, const Sizes& m, std::optional<TensorId> mask) {
  const std::string self = name + ".attention.self";
  const auto heads = [&](const std::string& part) {
    const TensorId y = layers::dense(builder, self + part, x, {.features = m.hidden});
    return layers::split_heads(builder, self + part, y, m.heads);
  };
  const TensorId query = heads(".query");
  const TensorId key = heads(".key");
  const TensorId mixed = layers::attention(
      builder, self, {.query = query, .key = key, .value = heads(".value"), .mask = mask, .dropout = m.dropout});
  x = add_and_norm(builder, name + ".attention.output", x, mixed, m);
  TensorId y = layers::dense(builder, name + ".intermediate.dense", x, {.features = 4 * m.hidden});
  y = builder.add_one("gelu", {y}, {}, name + ".intermediate");
  return add_and_norm(builder, name + ".output", x, y, m);
}

/// Returns the outputs of the masked language model head.
ModelOutputs masked_tokens(Builder& builder, const Sizes& m, TensorId x, TensorId words, const ModelInputs& inputs) {
  const std::string name = "cls.predictions";
  if (inputs.has("positions")) {
    x = builder.add_one("gather", {x, inputs.find(builder, "positions")},
                        {{"axis", std::int64_t{1}}, {"batch_dims", std::int64_t{1}}}, name + ".masked");
  }
  x = layers::dense(builder, name + ".transform.dense", x, {.features = m.hidden});
  x = builder.add_one("gelu", {x}, {}, name + ".transform");
  x = layers::layer_norm(builder, name + ".transform.LayerNorm", x, kEpsilon);
  const TensorId bias =
      builder.variable(name + ".bias", {DataType::kF32, {m.vocabulary}, Layout::kRowMajor}, Role::kParameter, {});
  const TensorId logits = builder.add_one("linear", {x, words, bias}, {}, name + ".decoder");
  return layers::score(builder, logits, inputs, name + ".loss");
}

/// Returns the loss of predicting, from the first token, whether the second segment follows the first segment.
LossTerm next_sentence(Builder& builder, const Sizes& m, TensorId x, const ModelInputs& inputs) {
  const std::int64_t B = builder.type(x).shape[0];
  x = builder.add_one("slice", {x}, {{"axis", std::int64_t{1}}, {"begin", std::int64_t{0}}, {"count", std::int64_t{1}}},
                      "bert.pooler.first");
  x = layers::reshape(builder, "bert.pooler.token", x, {B, m.hidden});
  x = layers::dense(builder, "bert.pooler.dense", x, {.features = m.hidden});
  x = builder.add_one("tanh", {x}, {}, "bert.pooler");
  const std::string name = "cls.seq_relationship";
  const TensorId logits = layers::dense(builder, name, x, {.features = 2});
  const std::string labels = "next_sentence";
  const auto y = builder.add("softmax_cross_entropy", {logits, inputs.find(builder, labels)}, {},
                             {name + ".loss", name + ".correct", name + ".count"});
  return {.loss = y[0], .count = y[2], .labels = labels};
}

/// Refuses labels that do not match the tokens. Without an attention mask, labels for every token are refused too: they
/// could be the next tokens, which BERT sees among its inputs.
void check_labels(Builder& builder, const ModelInputs& inputs, TensorId tokens) {
  const TensorId labels = inputs.find(builder, "labels");
  if (!builder.status()) {
    return;
  }
  const bool positions = inputs.has("positions") || !inputs.has("attention_mask");
  const TensorId beside = positions ? inputs.find(builder, "positions") : tokens;
  if (!builder.status()) {
    return;
  }
  const TensorType& needed = builder.type(beside);
  if (builder.type(labels) != needed) {
    builder.refuse({ErrorCode::kUsage,
                    fmt::format("data.source: the model needs labels of type {}, one per {}, but the dataset "
                                "has {}; check that data.task = masked-lm",
                                to_text(needed), positions ? "position" : "token", to_text(builder.type(labels)))});
  }
}

void check_segments(Builder& builder, const ModelInputs& inputs, TensorId tokens) {
  if (builder.status() && inputs.has("segments") &&
      builder.type(inputs.find(builder, "segments")) != builder.type(tokens)) {
    builder.refuse(
        {ErrorCode::kUsage,
         fmt::format("data.source: the model needs segments of type {}, one per token, but the dataset has {}",
                     to_text(builder.type(tokens)), to_text(builder.type(inputs.find(builder, "segments"))))});
  }
}

/// The encoder's result x [B,T,H], and the table of words.
struct Encoded {
  TensorId x{};
  TensorId words{};
};

/// Appends the embeddings and the layers of the encoder.
Encoded encode(Builder& builder, const Sizes& m, TensorId tokens, const ModelInputs& inputs) {
  check_segments(builder, inputs, tokens);
  builder.layer("bert.embeddings", /*counted=*/false);
  const std::optional<TensorId> mask = layers::attention_mask(builder, inputs, tokens);
  if (!builder.status()) {
    return {};
  }
  const TensorId words =
      layers::embedding_table(builder, "bert.embeddings.word_embeddings.weight", m.vocabulary, m.hidden);
  TensorId x = embeddings(builder, m, words, tokens, inputs);
  for (std::int64_t l = 0; l < m.layers; ++l) {
    const std::string name = fmt::format("bert.encoder.layer.{}", l);
    builder.layer(name);
    x = layer(builder, name, x, m, mask);
  }
  return {x, words};
}

ModelOutputs build(Builder& builder, const ModelInputs& inputs) {
  const Sizes m = layers::transformer_sizes(inputs);
  const TensorId tokens = layers::tokens(builder, inputs, m);
  if (inputs.scored()) {
    check_labels(builder, inputs, tokens);
  }
  const Encoded encoded = encode(builder, m, tokens, inputs);
  if (!builder.status()) {
    return {};
  }
  builder.layer("cls", /*counted=*/false);
  ModelOutputs outputs = masked_tokens(builder, m, encoded.x, encoded.words, inputs);
  if (!builder.status()) {
    return {};
  }
  if (!outputs.scored || !inputs.has("next_sentence")) {
    return outputs;
  }
  const LossTerm sentences = next_sentence(builder, m, encoded.x, inputs);
  outputs.terms = {{.loss = outputs.loss, .count = outputs.count}, sentences};
  outputs.loss = builder.add_one("add", {outputs.loss, sentences.loss}, {}, "loss");
  return outputs;
}

/// Refuses labels other than the first and the last position of each answer.
void check_answers(Builder& builder, const ModelInputs& inputs, TensorId tokens) {
  const TensorId labels = inputs.find(builder, "labels");
  if (!builder.status()) {
    return;
  }
  const TensorType needed{DataType::kI32, {builder.type(tokens).shape[0], 2}, Layout::kRowMajor};
  if (builder.type(labels) != needed) {
    builder.refuse({ErrorCode::kUsage,
                    fmt::format("data.source: the model needs labels of type {}, the first and last position of each "
                                "answer, but the dataset has {}; check that data.task = question-answering",
                                to_text(needed), to_text(builder.type(labels)))});
  }
}

ModelOutputs build_squad(Builder& builder, const ModelInputs& inputs) {
  const Sizes m = layers::transformer_sizes(inputs);
  const TensorId tokens = layers::tokens(builder, inputs, m);
  if (inputs.scored()) {
    check_answers(builder, inputs, tokens);
  }
  const Encoded encoded = encode(builder, m, tokens, inputs);
  if (!builder.status()) {
    return {};
  }
  const std::string name = "qa_outputs";
  builder.layer(name, /*counted=*/false);
  const TensorId scores = layers::dense(builder, name, encoded.x, {.features = 2});
  const TensorId logits = builder.add_one("transpose", {scores}, {{"perm", Shape{0, 2, 1}}}, name + ".logits");
  return layers::score(builder, logits, inputs, "loss");
}

constexpr std::int64_t kLength = 512;

std::map<std::string, std::int64_t> default_sizes(std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
  return {
      {"heads", heads}, {"hidden", hidden}, {"layers", layers}, {"sequence-length", kLength}, {"vocabulary", 30522}};
}

/// Returns BERT with Devlin et al.'s vocabulary, sequence length and masks per sequence (max_predictions_per_seq).
Model bert(const std::string& name, std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
  constexpr std::int64_t kMasks = 76;
  return {.name = name,
          .description = fmt::format("masked language model and next sentence, {} layers, hidden {}, "
                                     "{} heads",
                                     layers, hidden, heads),
          .sizes = default_sizes(layers, hidden, heads),
          .sample = {.tensors = {{"tokens", DataType::kI32, {kLength}},
                                 {"segments", DataType::kI32, {kLength}},
                                 {"positions", DataType::kI32, {kMasks}},
                                 {"labels", DataType::kI32, {kMasks}},
                                 {"next_sentence", DataType::kI32, {}}}},
          .has_dropout = true,
          .build = build};
}

/// Returns BERT with the head for SQuAD, and with the sequences of Devlin et al.'s run_squad.py.
Model squad(const std::string& name, std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
  constexpr std::int64_t kTokens = 384;
  return {
      .name = name,
      .description = fmt::format("answers of questions (SQuAD), {} layers, hidden {}, {} heads", layers, hidden, heads),
      .sizes = default_sizes(layers, hidden, heads),
      .sample = {.tensors = {{"tokens", DataType::kI32, {kTokens}},
                             {"segments", DataType::kI32, {kTokens}},
                             {"labels", DataType::kI32, {2}}}},
      .has_dropout = true,
      .build = build_squad};
}

}  // namespace

std::vector<Model> models() {
  return {bert("bert-base", 12, 768, 12), bert("bert-large", 24, 1024, 16), squad("bert-base-squad", 12, 768, 12),
          squad("bert-large-squad", 24, 1024, 16)};
}

}  // namespace poprun::models::bert
