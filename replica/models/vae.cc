#include <fmt/format.h>

#include "replica/models/layers/layers.h"
#include "replica/models/layers/losses.h"
#include "replica/models/layers/model.h"
#include "replica/models/layers/shapes.h"

/// A variational autoencoder (Kingma and Welling, "Auto-encoding variational Bayes", ICLR 2014) of dense layers, with
/// the architecture and parameter names of PyTorch's example: 784-400-(20 + 20)-400-784 for 28 x 28 images, with
/// 652,824 parameters. The sizes are `hidden` and `latent`.
///
///   x -> fc1 -> relu -> mean (fc21), log of the variance (fc22)
///   z = mean + exp(log-variance / 2) * noise;  z = mean in evaluation and inference
///   z -> fc3 -> relu -> fc4 -> sigmoid: the reconstruction, which is the model's output
///
///   loss = mean over the images of: sum over the pixels of the binary cross-entropy
///          + KL divergence of N(mean, variance) from N(0, 1)
///
/// Pixels must lie in [0, 1]: u8 images are divided by 255, regardless of data.mean and data.deviation, and f32 images
/// are used as they are. "labels" are optional: a negative label or a NaN marks padding, which does not count. Without
/// them, the images that pad the last batch of an evaluation also count.
namespace poprun::models::vae {
namespace {

TensorId fill(Builder& builder, const std::string& name, double value) {
  return builder.add_one("fill", {}, {{"shape", Shape{}}, {"value", value}}, name);
}

/// Returns the images as rows [N,P] of pixels in [0, 1].
TensorId pixels(Builder& builder, const ModelInputs& inputs) {
  ModelInputs unit = inputs;
  unit.mean = 0;
  unit.deviation = 1;
  return layers::flatten(builder, "pixels", layers::images(builder, unit, {.planes = false}));
}

TensorId latent_code(Builder& builder, const ModelInputs& inputs, TensorId mean, TensorId log_variance) {
  if (!inputs.training || !builder.status()) {
    return mean;
  }
  const TensorId noise = builder.add_one("random_normal", {},
                                         {{"shape", builder.type(mean).shape}, {"key", std::string{"noise"}}}, "noise");
  const TensorId halved = builder.add_one("mul", {log_variance, fill(builder, "half", 0.5)}, {}, "log_deviation");
  const TensorId deviation = builder.add_one("exp", {halved}, {}, "deviation");
  return layers::add(builder, "z", mean, builder.add_one("mul", {noise, deviation}, {}, "spread"));
}

/// Returns f32[N], 1 for each image that counts, or nothing if all do.
std::optional<TensorId> counts(Builder& builder, const ModelInputs& inputs, std::int64_t N) {
  if (!inputs.has("labels")) {
    return std::nullopt;
  }
  const TensorId labels = inputs.find(builder, "labels");
  const TensorType type = builder.type(labels);
  const bool integers = type.data == DataType::kI32;
  TensorId numbers = labels;
  if (integers) {
    numbers = builder.add_one("cast", {labels}, {{"to", std::string{"f32"}}}, "labels.numbers");
  }
  numbers = layers::reshape(builder, "labels.rows", numbers, {N, type.elements() / N});
  const TensorId known =
      builder.add_one(integers ? "greater_equal" : "equal",
                      {numbers, integers ? fill(builder, "labels.zero", 0) : numbers}, {}, "labels.known");
  return layers::reduce(builder, "labels.counts", layers::Reduction::kMin, known, {1}, /*keep_dims=*/false);
}

/// Adds the loss of logits [N,P] of the pixels x [N,P], in float32.
ModelOutputs loss(Builder& builder, const ModelInputs& inputs, TensorId x, TensorId logits, TensorId mean,
                  TensorId log_variance) {
  using layers::Reduction;
  const std::int64_t N = builder.type(x).shape[0];
  const std::size_t first = builder.graph().tensors().size();
  const auto op = [&](const std::string& kind, const std::vector<TensorId>& operands, const std::string& name) {
    return builder.add_one(kind, operands, {}, "loss." + name);
  };
  const auto sum = [&](TensorId of, std::int64_t axis, const std::string& name) {
    return layers::reduce(builder, "loss." + name, Reduction::kSum, of, {axis}, /*keep_dims=*/false);
  };
  // log(1 + exp(logit)) - logit * pixel
  const TensorId entropy =
      op("sub", {op("softplus", {logits}, "softplus"), op("mul", {logits, x}, "product")}, "pixel");
  // (mean^2 + variance - 1 - log-variance) / 2
  const TensorId squares =
      op("add", {op("mul", {mean, mean}, "squares"), op("exp", {log_variance}, "variance")}, "moments");
  const TensorId excess =
      op("sub", {op("sub", {squares, log_variance}, "less"), fill(builder, "loss.one", 1)}, "excess");
  const TensorId divergence = op("mul", {excess, fill(builder, "loss.half", 0.5)}, "divergence");
  TensorId rows = op("add", {sum(entropy, 1, "reconstruction"), sum(divergence, 1, "kl")}, "rows");
  TensorId count = fill(builder, "loss.count", static_cast<double>(N));
  TensorId divisor = count;
  if (const auto mask = counts(builder, inputs, N)) {
    rows = op("where", {*mask, rows, fill(builder, "loss.zero", 0)}, "counted");
    count = sum(*mask, 0, "count.sum");
    divisor = op("max", {count, fill(builder, "loss.least", 1)}, "divisor");
  }
  const TensorId mean_loss = builder.add_one("div", {sum(rows, 0, "total"), divisor}, {}, "loss");
  const TensorId correct = op("neg", {count}, "correct");
  layers::mark_metrics(builder.graph(), first);
  return {.loss = mean_loss, .correct = correct, .count = count};
}

ModelOutputs build(Builder& builder, const ModelInputs& inputs) {
  builder.layer("fc1");
  const TensorId x = pixels(builder, inputs);
  if (!builder.status()) {
    return {};
  }
  const Shape shape = builder.type(inputs.find(builder, "images")).shape;
  const std::int64_t P = builder.type(x).shape[1];
  const auto dense = [&](const std::string& name, TensorId of, std::int64_t features) {
    return layers::linear(builder, name, of, features);
  };
  const TensorId coded = layers::relu(builder, "relu1", dense("fc1", x, inputs.size("hidden")));
  builder.layer("fc2");
  const TensorId mean = dense("fc21", coded, inputs.size("latent"));
  const TensorId log_variance = dense("fc22", coded, inputs.size("latent"));
  const TensorId z = latent_code(builder, inputs, mean, log_variance);
  builder.layer("fc3");
  const TensorId decoded = layers::relu(builder, "relu3", dense("fc3", z, inputs.size("hidden")));
  builder.layer("fc4");
  const TensorId logits = dense("fc4", decoded, P);
  ModelOutputs outputs = loss(builder, inputs, x, logits, mean, log_variance);
  const TensorId probabilities = builder.add_one("sigmoid", {logits}, {}, "probabilities");
  outputs.prediction = layers::reshape(builder, "reconstruction", probabilities, shape);
  return outputs;
}

}  // namespace

std::vector<Model> models() {
  return {
      {.name = "vae",
       .description = "variational autoencoder of dense layers: 784-400-20-400-784 on Fashion-MNIST",
       .sizes = {{"hidden", 400}, {"latent", 20}},
       .sample = {.tensors = {{"images", DataType::kU8, {1, 28, 28}}, {"labels", DataType::kI32, {}}}, .classes = 10},
       .build = build}};
}

}  // namespace poprun::models::vae
