#include <fmt/format.h>

#include "replica/models/layers/layers.h"
#include "replica/models/layers/model.h"
#include "replica/models/layers/recurrent.h"
#include "replica/models/layers/transformer.h"

/// A language model of LSTM layers (Zaremba, Sutskever and Vinyals, "Recurrent neural network regularization",
/// arXiv:1409.2329), with the parameter names of PyTorch's example word_language_model: an embedding, LSTM layers, and
/// a linear layer to the vocabulary. `lstm` is the paper's medium model with 19,780,400 parameters, and `lstm-large`
/// its large one with 66,034,000. Dropout acts before the first layer, between layers and after the last.
///
/// Every sequence starts from a zero state: no state is carried from one batch to the next. The steps are unrolled, so
/// the number of operations grows with the length of the sequences (data.sequence-length).
namespace poprun::models::lstm {
namespace {

TensorId table(Builder& builder, const std::string& name, std::int64_t rows, std::int64_t features) {
  return builder.variable(name, {DataType::kF32, {rows, features}, Layout::kRowMajor}, Role::kParameter,
                          {.distribution = Distribution::kUniform, .value = 0.1});
}

ModelOutputs build(Builder& builder, const ModelInputs& inputs) {
  const std::int64_t hidden = inputs.size("hidden");
  const std::int64_t vocabulary = inputs.size("vocabulary");
  const double dropout = inputs.training ? inputs.dropout : 0;
  builder.layer("encoder", /*counted=*/false);
  const TensorId tokens = layers::tokens(builder, inputs,
                                         {.layers = inputs.size("layers"),
                                          .hidden = hidden,
                                          .heads = 1,
                                          .vocabulary = vocabulary,
                                          .sequence_length = inputs.size("sequence-length"),
                                          .dropout = dropout});
  layers::check_next_tokens(builder, inputs, tokens);
  if (!builder.status()) {
    return {};
  }
  const std::int64_t N = builder.type(tokens).shape[0];
  const std::int64_t T = builder.type(tokens).shape[1];
  const TensorId by_step = builder.add_one("transpose", {tokens}, {{"perm", Shape{1, 0}}}, "tokens.by-step");
  TensorId x = layers::embed(builder, "encoder", table(builder, "encoder.weight", vocabulary, hidden), by_step);
  x = layers::reshape(builder, "encoder.rows", x, {T * N, hidden});
  x = layers::dropout(builder, "encoder.drop", x, dropout);
  for (std::int64_t k = 0; k < inputs.size("layers"); ++k) {
    builder.layer(fmt::format("rnn.l{}", k));
    x = layers::lstm_layer(builder, "rnn", k, x, T, hidden);
    x = layers::dropout(builder, fmt::format("rnn.l{}.drop", k), x, dropout);
  }
  builder.layer("decoder", /*counted=*/false);
  x = layers::reshape(builder, "rnn.steps", x, {T, N, hidden});
  x = builder.add_one("transpose", {x}, {{"perm", Shape{1, 0, 2}}}, "rnn.sequences");
  const TensorId w = table(builder, "decoder.weight", vocabulary, hidden);
  const TensorId b =
      builder.variable("decoder.bias", {DataType::kF32, {vocabulary}, Layout::kRowMajor}, Role::kParameter, {});
  const TensorId logits = builder.add_one("linear", {x, w, b}, {}, "decoder");
  return layers::score(builder, logits, inputs, "loss");
}

Model model(const std::string& name, std::int64_t hidden) {
  constexpr std::int64_t kSteps = 35;
  return {.name = name,
          .description = fmt::format("language model, 2 LSTM layers, hidden {}", hidden),
          .sizes = {{"hidden", hidden}, {"layers", 2}, {"sequence-length", kSteps}, {"vocabulary", 10000}},
          .sample = {.tensors = {{"tokens", DataType::kI32, {kSteps}}, {"labels", DataType::kI32, {kSteps}}}},
          .has_dropout = true,
          .build = build};
}

}  // namespace

std::vector<Model> models() {
  return {model("lstm", 650), model("lstm-large", 1500)};
}

}  // namespace poprun::models::lstm
