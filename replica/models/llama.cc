#include <fmt/format.h>

#include "replica/models/layers/llama_blocks.h"
#include "replica/models/layers/model.h"

/// Llama (Dubey et al., "The Llama 3 herd of models", 2024) as a language model; layers/llama_blocks.h describes its
/// inputs. The parameters have the names and shapes of Hugging Face's LlamaForCausalLM. There is no dropout.
namespace poprun::models::llama {
namespace {

using layers::LlamaDefaults;

TensorId feed_forward(Builder& builder, const std::string& name, TensorId x, const layers::LlamaSizes& m) {
  return layers::swiglu(builder, name + ".mlp", x, m);
}

ModelOutputs build_tied(Builder& builder, const ModelInputs& inputs) {
  return layers::llama(builder, inputs, /*tied=*/true, feed_forward);
}

ModelOutputs build_untied(Builder& builder, const ModelInputs& inputs) {
  return layers::llama(builder, inputs, /*tied=*/false, feed_forward);
}

Model llama(const std::string& name, const LlamaDefaults& d, bool tied) {
  return {.name = name,
          .description = fmt::format("language model, {} layers, hidden {}, {} query heads, {} key-value heads",
                                     d.layers, d.hidden, d.heads, d.kv_heads),
          .sizes = layers::llama_size_map(d),
          .sample = layers::llama_sample(d),
          .build = tied ? build_tied : build_untied};
}

}  // namespace

std::vector<Model> models() {
  return {llama("llama-mini",
                {.layers = 2,
                 .hidden = 64,
                 .heads = 4,
                 .kv_heads = 2,
                 .intermediate = 176,
                 .vocabulary = 257,
                 .context = 256,
                 .rope_theta = 10'000,
                 .rope_factor = 1,
                 .sample = 64},
                true),
          llama("llama-3.2-1b",
                {.layers = 16,
                 .hidden = 2048,
                 .heads = 32,
                 .kv_heads = 8,
                 .intermediate = 8192,
                 .vocabulary = 128'256,
                 .context = 131'072,
                 .rope_theta = 500'000,
                 .rope_factor = 32,
                 .sample = 2048},
                true),
          llama("llama-3.1-8b",
                {.layers = 32,
                 .hidden = 4096,
                 .heads = 32,
                 .kv_heads = 8,
                 .intermediate = 14'336,
                 .vocabulary = 128'256,
                 .context = 131'072,
                 .rope_theta = 500'000,
                 .rope_factor = 8,
                 .sample = 2048},
                false)};
}

}  // namespace poprun::models::llama
