#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "replica/models/layers/model.h"
#include "replica/models/layers/transformer.h"
#include "replica/ops/builder/builder.h"

/// The decoder of Llama (Touvron et al., 2023; Llama 3: Dubey et al., 2024), which Mixtral shares: root mean square
/// normalisation, rotary position embeddings and grouped-query attention, without biases. The parameters have the names
/// and shapes of Hugging Face's LlamaForCausalLM.
namespace poprun::layers {

/// The sizes of a Llama, from train.cfg. Llama has no dropout.
struct LlamaSizes {
  TransformerSizes base;
  std::int64_t kv_heads;      ///< Heads of keys and values; divides the number of heads.
  std::int64_t intermediate;  ///< Width of the hidden layer of the feed-forward network.
  double rope_theta;
  double rope_factor;             ///< 1: frequencies are not scaled.
  std::int64_t vocabulary_parts;  ///< Tensors into which the rows of the embedding and of the head are divided.
};
LlamaSizes llama_sizes(const ModelInputs& inputs);

/// Returns the angle, in radians, by which each pair of elements of a head of d features turns per position: [d/2].
/// Frequency i is theta^(-2i/d). A factor other than 1 divides low frequencies, whose wavelength exceeds 8192 tokens,
/// by the factor, leaves those with a wavelength below 8192 / 4 tokens unchanged, and interpolates between them
/// (Hugging Face's rope_type "llama3" with low_freq_factor 1 and high_freq_factor 4).
std::vector<double> rope_frequencies(std::int64_t d, double theta, double factor);

/// Builds the feed-forward network of a block: maps x [B,T,H] to [B,T,H]. `name` is the block's name.
using FeedForward = std::function<TensorId(Builder&, const std::string& name, TensorId x, const LlamaSizes&)>;

/// Adds the SwiGLU network, NAME.gate_proj, NAME.up_proj and NAME.down_proj: down(silu(gate(x)) up(x)).
TensorId swiglu(Builder& builder, const std::string& name, TensorId x, const LlamaSizes& sizes);

/// Builds a language model of decoder blocks. With `tied`, the output layer shares the token embedding's weights. If
/// the vocabulary is divided into parts, part p has a tensor of its own in the embedding and in the head
/// (model.embed_tokens.p.weight, lm_head.p.weight), and a layer of its own, so that parts can be on different IPUs.
///
///   tokens i32[B,T]
///   labels i32[B,T]           the next tokens; ids outside the vocabulary, such as -1, do not count
///   attention_mask i32[B,T]   0 hides a token; if absent, no token is hidden
ModelOutputs llama(Builder& builder, const ModelInputs& inputs, bool tied, const FeedForward& feed_forward);

/// Default sizes and sample of a published model.
struct LlamaDefaults {
  std::int64_t layers;
  std::int64_t hidden;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t intermediate;
  std::int64_t vocabulary;
  std::int64_t context;  ///< Longest sequence.
  std::int64_t rope_theta;
  std::int64_t rope_factor;
  std::int64_t sample;  ///< Tokens of a sample.
};
std::map<std::string, std::int64_t> llama_size_map(const LlamaDefaults& defaults);
Sample llama_sample(const LlamaDefaults& defaults);

}  // namespace poprun::layers
