#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "replica/models/layers/layers.h"
#include "replica/models/layers/losses.h"
#include "replica/models/layers/model.h"

/// DLRM (Naumov et al., "Deep learning recommendation model for personalization and recommendation systems",
/// arXiv:1906.00091), with the parameter names and initial distributions of facebookresearch/dlrm.
///
///   dense f32[N,F]   -> bottom MLP -> x [N,d] -+--------------------------> concat -> top MLP -> logit
///                                              |                            ^
///   sparse i32[N,K] -> K rows [N,d] -----------+-> products of all pairs ---+
///
/// The loss is the binary cross-entropy of the logit and "labels" [N], 0 and 1, as i32 or f32.
///
///   dlrm       for Criteo's Kaggle data: d = 16, bottom 512-256-64-16, top 512-256-1, and tables with the sizes of its
///              26 categories; 540,677,217 parameters
///   dlrm-mini  bottom 64-d, top 64-1, and as many tables as the data has categories
///
/// The size `hidden` is d, and no table has more rows than `vocabulary`.
namespace poprun::models::dlrm {
namespace {

/// Distinct values of each category of Criteo's Kaggle data, as facebookresearch/dlrm counts them.
constexpr std::array<std::int64_t, 26> kKaggle = {1460,  583,  10131227, 2202608, 305, 24,     12517,   633,   3,
                                                  93145, 5683, 8351593,  3194,    27,  14992,  5461306, 10,    5652,
                                                  2173,  4,    7046547,  18,      15,  286181, 105,     142572};

struct Config {
  std::span<const std::int64_t> bottom;  ///< Widths of the hidden layers; the last layer has width d.
  std::span<const std::int64_t> top;     ///< The last layer has width 1.
  std::span<const std::int64_t> tables;  ///< Rows of the tables. Empty: `vocabulary` rows each, for any number.
};

TensorId parameter(Builder& builder, const std::string& name, Shape shape, const Initialiser& initialiser) {
  return builder.variable(name, {DataType::kF32, std::move(shape), Layout::kRowMajor}, Role::kParameter, initialiser);
}

/// Layer `index` of an MLP: weights of variance 2 / (in + out), biases of variance 1 / out.
TensorId dense(Builder& builder, const std::string& name, TensorId x, std::int64_t out) {
  if (!builder.status()) {
    return x;
  }
  const std::int64_t in = builder.type(x).shape[1];
  const auto normal = [](double variance) {
    return Initialiser{.distribution = Distribution::kNormal, .value = std::sqrt(variance)};
  };
  const TensorId w = parameter(builder, name + ".weight", {out, in}, normal(2.0 / static_cast<double>(in + out)));
  const TensorId b = parameter(builder, name + ".bias", {out}, normal(1.0 / static_cast<double>(out)));
  return builder.add_one("linear", {x, w, b}, {}, name);
}

/// Adds layers NAME.0, NAME.2 ... (relus have the odd numbers), with a relu after each except, optionally, the last.
TensorId mlp(Builder& builder, const std::string& name, TensorId x, std::span<const std::int64_t> hidden,
             std::int64_t last, bool last_relu) {
  for (std::size_t k = 0; k <= hidden.size(); ++k) {
    const bool ends = k == hidden.size();
    x = dense(builder, fmt::format("{}.{}", name, 2 * k), x, ends ? last : hidden[k]);
    x = ends && !last_relu ? x : layers::relu(builder, fmt::format("{}.{}", name, 2 * k + 1), x);
  }
  return x;
}

/// Returns one row of each table per sample, [N,d] each.
std::vector<TensorId> embeddings(Builder& builder, const Config& config, const ModelInputs& inputs, TensorId sparse) {
  const std::int64_t N = builder.type(sparse).shape[0];
  const std::int64_t d = inputs.size("hidden");
  std::vector<TensorId> rows;
  for (std::int64_t k = 0; k < builder.type(sparse).shape[1]; ++k) {
    const std::string name = fmt::format("emb_l.{}", k);
    const std::int64_t own =
        config.tables.empty() ? inputs.size("vocabulary") : config.tables[static_cast<std::size_t>(k)];
    const std::int64_t size = std::min(own, inputs.size("vocabulary"));
    const TensorId table =
        parameter(builder, name + ".weight", {size, d},
                  {.distribution = Distribution::kUniform, .value = 1 / std::sqrt(static_cast<double>(size))});
    const TensorId column = builder.add_one(
        "slice", {sparse}, {{"axis", std::int64_t{1}}, {"begin", k}, {"count", std::int64_t{1}}}, name + ".ids");
    const TensorId ids = layers::reshape(builder, name + ".row", column, {N});
    rows.push_back(builder.add_one("gather", {table, ids}, {{"axis", std::int64_t{0}}}, name));
  }
  return rows;
}

/// Returns x, followed by the product of each pair of features: of feature i with all before it, for i = 1, 2, ...
TensorId interact(Builder& builder, TensorId x, const std::vector<TensorId>& rows) {
  if (!builder.status()) {
    return x;
  }
  const std::int64_t N = builder.type(x).shape[0];
  const std::int64_t d = builder.type(x).shape[1];
  const auto count = static_cast<std::int64_t>(rows.size()) + 1;
  std::vector<TensorId> all = {x};
  all.insert(all.end(), rows.begin(), rows.end());
  const TensorId joined = builder.add_one("concat", all, {{"axis", std::int64_t{1}}}, "interaction.features");
  const TensorId features = layers::reshape(builder, "interaction.rows", joined, {N, count, d});
  const TensorId products =
      builder.add_one("matmul", {features, features}, {{"transpose_b", std::int64_t{1}}}, "interaction.products");
  const TensorId flat = layers::reshape(builder, "interaction.flat", products, {N, count * count});
  std::vector<double> below;
  for (std::int64_t i = 1; i < count; ++i) {
    for (std::int64_t j = 0; j < i; ++j) {
      below.push_back(static_cast<double>(i * count + j));
    }
  }
  const auto pairs = static_cast<std::int64_t>(below.size());
  const TensorId places = builder.constant("interaction.below", {pairs}, std::move(below));
  const TensorId indices = builder.add_one("cast", {places}, {{"to", std::string{"i32"}}}, "interaction.indices");
  const TensorId chosen = builder.add_one("gather", {flat, indices}, {{"axis", std::int64_t{1}}}, "interaction.pairs");
  return builder.add_one("concat", {x, chosen}, {{"axis", std::int64_t{1}}}, "interaction");
}

/// Makes the builder refuse (kUsage) features that do not fit.
void check(Builder& builder, const Config& config, TensorId dense_features, TensorId sparse) {
  if (!builder.status()) {
    return;
  }
  const TensorType& f = builder.type(dense_features);
  const TensorType& k = builder.type(sparse);
  const auto tables = static_cast<std::int64_t>(config.tables.size());
  if (f.data != DataType::kF32 || f.shape.size() != 2 || k.data != DataType::kI32 || k.shape.size() != 2 ||
      (tables > 0 && k.shape[1] != tables)) {
    builder.refuse({ErrorCode::kUsage,
                    fmt::format("data.source: the model needs dense features f32[N,F] and sparse ones i32[N,{}], but "
                                "the dataset has {} and {}",
                                tables > 0 ? std::to_string(tables) : "K", to_text(f), to_text(k))});
  }
}

ModelOutputs build(Builder& builder, const ModelInputs& inputs, const Config& config) {
  builder.layer("bot_l");
  const TensorId dense_features = inputs.find(builder, "dense");
  const TensorId sparse = inputs.find(builder, "sparse");
  const TensorId labels = inputs.scored() ? inputs.find(builder, "labels") : sparse;
  check(builder, config, dense_features, sparse);
  if (!builder.status()) {
    return {};
  }
  const TensorId x = mlp(builder, "bot_l", dense_features, config.bottom, inputs.size("hidden"), /*last_relu=*/true);
  builder.layer("emb_l");
  const TensorId features = interact(builder, x, embeddings(builder, config, inputs, sparse));
  builder.layer("top_l");
  const TensorId logits = mlp(builder, "top_l", features, config.top, 1, /*last_relu=*/false);
  return inputs.scored()
             ? layers::binary_cross_entropy(builder, "loss", "data.source", logits, labels, inputs.label_classes)
             : ModelOutputs{.prediction = logits, .scored = false};
}

constexpr std::array<std::int64_t, 3> kBottom = {512, 256, 64};
constexpr std::array<std::int64_t, 2> kTop = {512, 256};
constexpr std::array<std::int64_t, 1> kMini = {64};

}  // namespace

std::vector<Model> models() {
  const Sample criteo{
      .tensors = {{"dense", DataType::kF32, {13}}, {"sparse", DataType::kI32, {26}}, {"labels", DataType::kI32, {}}},
      .classes = 2};
  return {{.name = "dlrm",
           .description = "recommendation: 26 embedding tables, products of pairs, two MLPs; for Criteo's Kaggle data",
           .sizes = {{"hidden", 16}, {"vocabulary", *std::ranges::max_element(kKaggle)}},
           .sample = criteo,
           .build =
               [](Builder& builder, const ModelInputs& inputs) {
                 return build(builder, inputs, {kBottom, kTop, kKaggle});
               }},
          {.name = "dlrm-mini",
           .description = "dlrm with small tables, for any number of categories, and MLPs of two layers",
           .sizes = {{"hidden", 16}, {"vocabulary", 1000}},
           .sample = criteo,
           .build = [](Builder& builder, const ModelInputs& inputs) {
             return build(builder, inputs, {kMini, kMini, {}});
           }}};
}

}  // namespace poprun::models::dlrm
