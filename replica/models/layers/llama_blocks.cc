#include "replica/models/layers/llama_blocks.h"

#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "replica/models/layers/layers.h"

namespace poprun::layers {
namespace {

constexpr double kEpsilon = 1e-5;

/// Constants of Llama 3's frequency scaling.
constexpr double kOriginalContext = 8192;
constexpr double kLowFrequencyFactor = 1;
constexpr double kHighFrequencyFactor = 4;

/// Cosines and sines of the angles of each position: [T,d/2].
struct Tables {
  TensorId cosine{};
  TensorId sine{};
};

/// Angles are computed in double and their cosines and sines rounded once.
Tables rope_tables(Builder& builder, const LlamaSizes& m, std::int64_t T) {
  const std::int64_t d = m.base.hidden / m.base.heads;
  const std::vector<double> frequencies = rope_frequencies(d, m.rope_theta, m.rope_factor);
  std::vector<double> cosine;
  std::vector<double> sine;
  for (std::int64_t t = 0; t < T; ++t) {
    for (const double frequency : frequencies) {
      // Rounded here, because the Program stores constants as text.
      cosine.push_back(static_cast<double>(static_cast<float>(std::cos(static_cast<double>(t) * frequency))));
      sine.push_back(static_cast<double>(static_cast<float>(std::sin(static_cast<double>(t) * frequency))));
    }
  }
  const Shape shape = {T, d / 2};
  return {builder.constant(fmt::format("model.rotary_emb.cosine_{}", T), shape, std::move(cosine)),
          builder.constant(fmt::format("model.rotary_emb.sine_{}", T), shape, std::move(sine))};
}

TensorId self_attention(Builder& builder, const std::string& name, TensorId x, const LlamaSizes& m,
                        const Tables& tables, std::optional<TensorId> mask) {
  const std::int64_t d = m.base.hidden / m.base.heads;
  const auto heads = [&](const std::string& part, std::int64_t count) {
    const TensorId y = dense(builder, name + part, x, {.features = count * d, .bias = false});
    return split_heads(builder, name + part, y, count);
  };
  const auto rotated = [&](const std::string& part, std::int64_t count) {
    const TensorId y = heads(part, count);
    return builder.add_one("rotary", {y, tables.cosine, tables.sine}, {}, name + part + ".rotated");
  };
  const TensorId query = rotated(".q_proj", m.base.heads);
  const TensorId key = rotated(".k_proj", m.kv_heads);
  const TensorId value = heads(".v_proj", m.kv_heads);
  const TensorId y =
      attention(builder, name, {.query = query, .key = key, .value = value, .causal = true, .mask = mask});
  return dense(builder, name + ".o_proj", y, {.features = m.base.hidden, .bias = false});
}

/// Returns the name of part p of a layer that has a row for every word.
std::string part_name(const std::string& name, std::int64_t p, const LlamaSizes& m) {
  return m.vocabulary_parts == 1 ? name : fmt::format("{}.{}", name, p);
}

std::vector<TensorId> embedding_parts(Builder& builder, const LlamaSizes& m) {
  std::vector<TensorId> words;
  for (std::int64_t p = 0; p < m.vocabulary_parts; ++p) {
    words.push_back(embedding_table(builder, part_name("model.embed_tokens", p, m) + ".weight",
                                    m.base.vocabulary / m.vocabulary_parts, m.base.hidden));
  }
  return words;
}

/// Returns the embedded tokens [B,T,H]: the sum of what the parts contribute, which is 0 for words of other parts.
TensorId embed_parts(Builder& builder, const std::vector<TensorId>& words, TensorId tokens, const LlamaSizes& m) {
  if (words.size() == 1) {
    return embed(builder, "model.embed_tokens", words[0], tokens);
  }
  const std::int64_t rows = m.base.vocabulary / m.vocabulary_parts;
  std::optional<TensorId> sum;
  for (std::int64_t p = 0; p < m.vocabulary_parts; ++p) {
    const std::string name = part_name("model.embed_tokens", p, m);
    builder.layer(name, /*counted=*/false);
    const TensorId x = builder.add_one("gather", {words[static_cast<std::size_t>(p)], tokens},
                                       {{"axis", std::int64_t{0}},
                                        {"begin", p * rows},
                                        {"whole", m.base.vocabulary},
                                        {"outside", std::string{"zeros"}}},
                                       name);
    sum = sum ? builder.add_one("add", {*sum, x}, {}, name + ".sum") : x;
  }
  return *sum;
}

/// Returns the logits [B,T,V]. `words` are the weights of the head or, if it has weights of its own, empty.
TensorId head(Builder& builder, TensorId x, const std::vector<TensorId>& words, const LlamaSizes& m) {
  std::vector<TensorId> parts;
  for (std::int64_t p = 0; p < m.vocabulary_parts; ++p) {
    const std::string name = part_name("lm_head", p, m);
    builder.layer(name, /*counted=*/false);
    parts.push_back(words.empty()
                        ? dense(builder, name, x, {.features = m.base.vocabulary / m.vocabulary_parts, .bias = false})
                        : builder.add_one("linear", {x, words[static_cast<std::size_t>(p)]}, {}, name));
  }
  return parts.size() == 1 ? parts[0] : builder.add_one("concat", parts, {{"axis", std::int64_t{2}}}, "lm_head.logits");
}

void check_sizes(Builder& builder, const LlamaSizes& m) {
  if (!builder.status()) {
    return;
  }
  if (m.base.heads % m.kv_heads != 0) {
    builder.refuse({ErrorCode::kUsage,
                    fmt::format("model.kv-heads = {} does not divide model.heads = {}", m.kv_heads, m.base.heads)});
  } else if (m.base.vocabulary % m.vocabulary_parts != 0) {
    builder.refuse({ErrorCode::kUsage, fmt::format("model.vocabulary-parts = {} does not divide model.vocabulary = {}",
                                                   m.vocabulary_parts, m.base.vocabulary)});
  } else if (m.base.hidden / m.base.heads % 2 != 0) {
    builder.refuse({ErrorCode::kUsage, fmt::format("model.hidden = {} and model.heads = {} give heads of {} features, "
                                                   "but rotary embeddings need an even number",
                                                   m.base.hidden, m.base.heads, m.base.hidden / m.base.heads)});
  }
}

}  // namespace

LlamaSizes llama_sizes(const ModelInputs& inputs) {
  return {.base = transformer_sizes(inputs),
          .kv_heads = inputs.size("kv-heads"),
          .intermediate = inputs.size("intermediate"),
          .rope_theta = static_cast<double>(inputs.size("rope-theta")),
          .rope_factor = static_cast<double>(inputs.size("rope-factor")),
          .vocabulary_parts = inputs.size("vocabulary-parts")};
}

std::vector<double> rope_frequencies(std::int64_t d, double theta, double factor) {
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < d / 2; ++i) {
    const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(d));
    // How many periods fit in the original context.
    const double periods = kOriginalContext * frequency / (2 * std::numbers::pi);
    const double kept = (periods - kLowFrequencyFactor) / (kHighFrequencyFactor - kLowFrequencyFactor);
    frequencies.push_back(factor == 1 || kept > 1 ? frequency
                          : kept < 0              ? frequency / factor
                                                  : (1 - kept) * frequency / factor + kept * frequency);
  }
  return frequencies;
}

TensorId swiglu(Builder& builder, const std::string& name, TensorId x, const LlamaSizes& m) {
  TensorId gate = dense(builder, name + ".gate_proj", x, {.features = m.intermediate, .bias = false});
  gate = silu(builder, name + ".act", gate);
  const TensorId up = dense(builder, name + ".up_proj", x, {.features = m.intermediate, .bias = false});
  const TensorId y = builder.add_one("mul", {gate, up}, {}, name + ".gated");
  return dense(builder, name + ".down_proj", y, {.features = m.base.hidden, .bias = false});
}

ModelOutputs llama(Builder& builder, const ModelInputs& inputs, bool tied, const FeedForward& feed_forward) {
  const LlamaSizes m = llama_sizes(inputs);
  const TensorId tokens = layers::tokens(builder, inputs, m.base);
  check_sizes(builder, m);
  check_next_tokens(builder, inputs, tokens);
  if (!builder.status()) {
    return {};
  }
  builder.layer(part_name("model.embed_tokens", 0, m), /*counted=*/false);
  const std::optional<TensorId> mask = attention_mask(builder, inputs, tokens);
  const Tables tables = rope_tables(builder, m, builder.type(tokens).shape[1]);
  const std::vector<TensorId> words = embedding_parts(builder, m);
  TensorId x = embed_parts(builder, words, tokens, m);
  for (std::int64_t l = 0; l < m.base.layers; ++l) {
    const std::string name = fmt::format("model.layers.{}", l);
    builder.layer(name);
    TensorId y = rms_norm(builder, name + ".input_layernorm", x, kEpsilon);
    y = self_attention(builder, name + ".self_attn", y, m, tables, mask);
    x = builder.add_one("add", {x, y}, {}, name + ".self_attn.residual");
    y = rms_norm(builder, name + ".post_attention_layernorm", x, kEpsilon);
    y = feed_forward(builder, name, y, m);
    x = builder.add_one("add", {x, y}, {}, name + ".mlp.residual");
  }
  builder.layer(part_name("lm_head", 0, m), /*counted=*/false);
  x = rms_norm(builder, "model.norm", x, kEpsilon);
  const TensorId logits = head(builder, x, tied ? words : std::vector<TensorId>{}, m);
  return builder.status() ? score(builder, logits, inputs, "loss") : ModelOutputs{};
}

std::map<std::string, std::int64_t> llama_size_map(const LlamaDefaults& d) {
  return {{"heads", d.heads},           {"hidden", d.hidden},           {"intermediate", d.intermediate},
          {"kv-heads", d.kv_heads},     {"layers", d.layers},           {"rope-factor", d.rope_factor},
          {"rope-theta", d.rope_theta}, {"sequence-length", d.context}, {"vocabulary", d.vocabulary},
          {"vocabulary-parts", 1}};
}

Sample llama_sample(const LlamaDefaults& d) {
  return {.tensors = {{"tokens", DataType::kI32, {d.sample}}, {"labels", DataType::kI32, {d.sample}}}};
}

}  // namespace poprun::layers
