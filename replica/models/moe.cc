#include <algorithm>

#include <fmt/format.h>

#include "replica/models/layers/layers.h"
#include "replica/models/layers/llama_blocks.h"
#include "replica/models/layers/model.h"
#include "replica/models/layers/shapes.h"

/// Mixtral (Jiang et al., "Mixtral of experts", 2024): a Llama whose feed-forward networks are mixtures of experts;
/// layers/llama_blocks.h describes its inputs. The parameters have the names and shapes of Hugging Face's
/// MixtralForCausalLM, except that each of the three weights of a layer's experts is one tensor for all experts
/// (block_sparse_moe.experts.w1.weight [E,I,H], w2 [E,H,I], w3 [E,I,H]).
///
/// The experts of a token are the `active-experts` with the highest probability. The tokens of a micro-batch fill the
/// experts' slots in order, the first choice of a token before its second. Each expert has
///
///   C = min(N, ceil(N * active-experts * capacity-percent / 100 / experts))
///
/// slots for N tokens, and adds nothing to a token for which it has no slot left. By default, C = N for any number of
/// experts: no token is dropped, and results are those of Mixtral.
namespace poprun::models::moe {
namespace {

using layers::LlamaDefaults;
using layers::LlamaSizes;

constexpr std::int64_t kExpertsMax = 1024;  ///< As in the option model.experts.

/// N tokens, E experts, K of them for each token, C slots each.
struct Experts {
  std::int64_t E;
  std::int64_t K;
  std::int64_t percent;  ///< Slots in percent of those that evenly distributed tokens need.

  [[nodiscard]] std::int64_t capacity(std::int64_t N) const {
    return std::min(N, (N * K * percent + 100 * E - 1) / (100 * E));
  }
};

/// Which experts the tokens use, and with which weights.
struct Routing {
  TensorId weights{};  ///< [N,K]; the weights of a token sum to 1.
  TensorId slots{};    ///< i32[N,K] and i32[E C], as in the operator expert_slots.
  TensorId rows{};
};

/// Routes x [N,H]. Probabilities are float32 in every precision, as in Hugging Face.
Routing route(Builder& builder, const std::string& name, TensorId x, const Experts& experts, std::int64_t C) {
  const TensorId scores = layers::dense(builder, name + ".gate", x, {.features = experts.E, .bias = false});
  const TensorId probabilities = builder.add_one("softmax", {scores}, {}, name + ".probabilities");
  const auto best =
      builder.add("top_k", {probabilities}, {{"axis", std::int64_t{1}}, {"k", experts.K}, {"largest", std::int64_t{1}}},
                  {name + ".best", name + ".chosen"});
  const TensorId total = layers::reduce(builder, name + ".total", layers::Reduction::kSum, best[0], {1}, true);
  const TensorId weights = builder.add_one("div", {best[0], total}, {}, name + ".weights");
  for (const TensorId id : {scores, probabilities, best[0], total, weights}) {
    builder.keep_f32(id);
  }
  const auto places = builder.add("expert_slots", {best[1]}, {{"experts", experts.E}, {"capacity", C}},
                                  {name + ".slots", name + ".rows"});
  return {.weights = weights, .slots = places[0], .rows = places[1]};
}

/// Multiplies each expert's rows x [E,C,in] by its own weights: [E,C,out].
TensorId product(Builder& builder, const std::string& name, TensorId x, std::int64_t out) {
  if (!builder.status()) {
    return x;
  }
  const Shape s = builder.type(x).shape;
  const TensorId w =
      builder.variable(name + ".weight", {DataType::kF32, {s[0], out, s[2]}, Layout::kRowMajor}, Role::kParameter,
                       {.distribution = Distribution::kNormal, .value = layers::kTransformerDeviation});
  return builder.add_one("matmul", {x, w}, {{"transpose_b", std::int64_t{1}}}, name);
}

TensorId collect(Builder& builder, const std::string& name, TensorId rows, TensorId indices) {
  return builder.add_one("gather", {rows, indices}, {{"axis", std::int64_t{0}}, {"outside", std::string{"zeros"}}},
                         name);
}

/// Maps x [B,T,H] to [B,T,H].
TensorId mixture(Builder& builder, const std::string& name, TensorId x, const LlamaSizes& m, const Experts& experts) {
  if (!builder.status()) {
    return x;
  }
  const Shape shape = builder.type(x).shape;
  const std::int64_t N = shape[0] * shape[1];
  const std::int64_t H = shape[2];
  const std::int64_t C = experts.capacity(N);
  const TensorId tokens = layers::reshape(builder, name + ".tokens", x, {N, H});
  const Routing routing = route(builder, name, tokens, experts, C);
  const std::string each = name + ".experts";
  TensorId y = collect(builder, each + ".collected", tokens, routing.rows);
  y = layers::reshape(builder, each + ".inputs", y, {experts.E, C, H});
  TensorId gate = product(builder, each + ".w1", y, m.intermediate);
  gate = layers::silu(builder, each + ".act", gate);
  const TensorId up = product(builder, each + ".w3", y, m.intermediate);
  y = builder.add_one("mul", {gate, up}, {}, each + ".gated");
  y = product(builder, each + ".w2", y, H);
  y = layers::reshape(builder, each + ".outputs", y, {experts.E * C, H});
  y = collect(builder, name + ".returned", y, routing.slots);
  const TensorId weights = layers::reshape(builder, name + ".factors", routing.weights, {N, experts.K, 1});
  y = builder.add_one("mul", {y, weights}, {}, name + ".weighted");
  y = layers::reduce(builder, name + ".mixed", layers::Reduction::kSum, y, {1}, true);
  return layers::reshape(builder, name + ".joined", y, shape);
}

ModelOutputs build(Builder& builder, const ModelInputs& inputs) {
  const Experts experts{
      .E = inputs.size("experts"), .K = inputs.size("active-experts"), .percent = inputs.size("capacity-percent")};
  if (experts.K > experts.E) {
    builder.refuse(
        {ErrorCode::kUsage, fmt::format("model.active-experts = {} exceeds model.experts = {}", experts.K, experts.E)});
  }
  return layers::llama(builder, inputs, /*tied=*/false,
                       [&](Builder& b, const std::string& name, TensorId x, const LlamaSizes& m) {
                         return mixture(b, name + ".block_sparse_moe", x, m, experts);
                       });
}

Model moe(const std::string& name, const LlamaDefaults& d, std::int64_t experts, std::int64_t active) {
  Model model = {.name = name,
                 .description = fmt::format("language model, {} layers, hidden {}, {} heads, {} of {} experts",
                                            d.layers, d.hidden, d.heads, active, experts),
                 .sizes = layers::llama_size_map(d),
                 .sample = layers::llama_sample(d),
                 .build = build};
  model.sizes["experts"] = experts;
  model.sizes["active-experts"] = active;
  model.sizes["capacity-percent"] = 100 * kExpertsMax;
  return model;
}

}  // namespace

std::vector<Model> models() {
  return {moe("moe-mini",
              {.layers = 2,
               .hidden = 64,
               .heads = 4,
               .kv_heads = 2,
               .intermediate = 96,
               .vocabulary = 257,
               .context = 256,
               .rope_theta = 10'000,
               .rope_factor = 1,
               .sample = 64},
              4, 2),
          moe("mixtral-8x7b",
              {.layers = 32,
               .hidden = 4096,
               .heads = 32,
               .kv_heads = 8,
               .intermediate = 14'336,
               .vocabulary = 32'000,
               .context = 32'768,
               .rope_theta = 1'000'000,
               .rope_factor = 1,
               .sample = 2048},
              8, 2)};
}

}  // namespace poprun::models::moe
