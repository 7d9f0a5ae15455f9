#include <fmt/format.h>

#include "replica/models/layers/layers.h"
#include "replica/models/layers/model.h"
#include "replica/models/layers/resnet.h"
#include "replica/models/layers/shapes.h"
#include "replica/models/layers/transformer.h"

/// Vision transformers (Dosovitskiy et al., 2021) on patches of 16 x 16 pixels, as image classifiers. The parameters
/// have the names and shapes of Hugging Face's ViTForImageClassification. Dropout is applied where Hugging Face applies
/// it, at a single rate.
///
///   images u8 or f32 [N,C,S,S]   S is a multiple of 16
///   labels i32[N]
///
/// A class token precedes the patches, and the token's last state is classified. With three-channel images of 224 x 224
/// pixels and 1000 classes, vit-base-16 has 86,567,656 parameters and vit-large-16 has 304,326,632.
namespace poprun::models::vit {
namespace {

constexpr double kEpsilon = 1e-12;
constexpr std::int64_t kPatch = 16;

/// H features, h heads.
struct Sizes {
  std::int64_t layers;
  std::int64_t hidden;
  std::int64_t heads;
  double dropout;  ///< 0 outside training.
};

TensorId variable(Builder& builder, const std::string& name, Shape shape) {
  return builder.variable(name, {DataType::kF32, std::move(shape), Layout::kRowMajor}, Role::kParameter,
                          {.distribution = Distribution::kNormal, .value = layers::kTransformerDeviation});
}

/// Maps images [N,C,S,S] to [N,T,H]: the class token and (S / 16)^2 patches, each with its position added.
TensorId embeddings(Builder& builder, TensorId images, const Sizes& m) {
  const std::string name = "vit.embeddings";
  const std::string patches = name + ".patch_embeddings.projection";
  TensorId x = layers::conv2d(builder, patches, images, {.channels = m.hidden, .kernel = kPatch, .stride = kPatch});
  if (!builder.status()) {
    return x;
  }
  const Shape s = builder.type(x).shape;
  const std::int64_t count = s[2] * s[3];
  x = layers::reshape(builder, patches + ".columns", x, {s[0], m.hidden, count});
  x = builder.add_one("transpose", {x}, {{"perm", Shape{0, 2, 1}}}, patches + ".rows");
  const TensorId token = layers::tile(builder, name + ".cls_tokens",
                                      variable(builder, name + ".cls_token", {1, 1, m.hidden}), {s[0], 1, 1});
  x = builder.add_one("concat", {token, x}, {{"axis", std::int64_t{1}}}, name + ".tokens");
  const TensorId places = variable(builder, name + ".position_embeddings", {1, count + 1, m.hidden});
  x = builder.add_one("add", {x, places}, {}, name + ".placed");
  return layers::dropout(builder, name + ".dropout", x, m.dropout);
}

/// Applies a dense layer to y and adds the result to x.
TensorId add_dense(Builder& builder, const std::string& name, TensorId x, TensorId y, const Sizes& m) {
  y = layers::dense(builder, name + ".dense", y, {.features = m.hidden});
  y = layers::dropout(builder, name + ".dropout", y, m.dropout);
  return builder.add_one("add", {x, y}, {}, name + ".residual");
}

TensorId layer(Builder& builder, const std::string& name, TensorId x, const Sizes& m) {
  const std::string self = name + ".attention.attention";
  TensorId y = layers::layer_norm(builder, name + ".layernorm_before", x, kEpsilon);
  const auto heads = [&](const std::string& part) {
    const TensorId all = layers::dense(builder, self + part, y, {.features = m.hidden});
    return layers::split_heads(builder, self + part, all, m.heads);
  };
  const TensorId query = heads(".query");
  const TensorId key = heads(".key");
  const TensorId value = heads(".value");
  y = layers::attention(builder, self, {.query = query, .key = key, .value = value, .mask = {}, .dropout = m.dropout});
  x = add_dense(builder, name + ".attention.output", x, y, m);
  y = layers::layer_norm(builder, name + ".layernorm_after", x, kEpsilon);
  y = layers::dense(builder, name + ".intermediate.dense", y, {.features = 4 * m.hidden});
  y = builder.add_one("gelu", {y}, {}, name + ".intermediate");
  return add_dense(builder, name + ".output", x, y, m);
}

/// Makes the builder refuse images that patches do not fill.
void check_patches(Builder& builder, TensorId images) {
  if (!builder.status()) {
    return;
  }
  const Shape& s = builder.type(images).shape;
  if (s[2] % kPatch != 0 || s[3] % kPatch != 0) {
    builder.refuse({ErrorCode::kUsage, fmt::format("data.source: the model needs images whose height and width are "
                                                   "multiples of {}, but the dataset has images of {} x {} pixels",
                                                   kPatch, s[2], s[3])});
  }
}

ModelOutputs build(Builder& builder, const ModelInputs& inputs) {
  const Sizes m{.layers = inputs.size("layers"),
                .hidden = inputs.size("hidden"),
                .heads = inputs.size("heads"),
                .dropout = inputs.training ? inputs.dropout : 0};
  builder.layer("vit.embeddings", /*counted=*/false);
  const TensorId images = layers::images(builder, inputs, {.least_size = kPatch});
  check_patches(builder, images);
  layers::check_heads(builder, m.heads, m.hidden);
  TensorId x = embeddings(builder, images, m);
  for (std::int64_t l = 0; l < m.layers; ++l) {
    const std::string name = fmt::format("vit.encoder.layer.{}", l);
    builder.layer(name);
    x = layer(builder, name, x, m);
  }
  builder.layer("classifier", /*counted=*/false);
  x = layers::layer_norm(builder, "vit.layernorm", x, kEpsilon);
  if (!builder.status()) {
    return {};
  }
  const std::int64_t N = builder.type(x).shape[0];
  x = builder.add_one("slice", {x}, {{"axis", std::int64_t{1}}, {"begin", std::int64_t{0}}, {"count", std::int64_t{1}}},
                      "vit.class");
  return layers::classify(builder, "classifier", layers::reshape(builder, "vit.pooled", x, {N, m.hidden}), inputs);
}

Model vit(const std::string& name, std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
  return {.name = name,
          .description = fmt::format("vision transformer on 16 x 16 patches, {} layers, hidden {}, {} heads", layers,
                                     hidden, heads),
          .sizes = {{"classes", kOfData}, {"heads", heads}, {"hidden", hidden}, {"layers", layers}},
          .sample = layers::imagenet_sample(),
          .has_dropout = true,
          .build = build};
}

}  // namespace

std::vector<Model> models() {
  return {vit("vit-base-16", 12, 768, 12), vit("vit-large-16", 24, 1024, 16)};
}

}  // namespace poprun::models::vit
