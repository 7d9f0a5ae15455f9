#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "replica/models/layers/model.h"
#include "replica/ops/builder/builder.h"

/// Layers of transformers. Parameters are called NAME.weight and NAME.bias. Unless stated otherwise, initial weights
/// are normally distributed with standard deviation 0.02, as in GPT-2 and BERT, and biases are 0.
///
///   B  sequences    T  tokens    H  features    h  heads of d = H / h features
namespace poprun::layers {

inline constexpr double kTransformerDeviation = 0.02;

/// The sizes of a transformer, from train.cfg.
struct TransformerSizes {
  std::int64_t layers;
  std::int64_t hidden;
  std::int64_t heads;
  std::int64_t vocabulary;
  std::int64_t sequence_length;  ///< Longest sequence, in tokens.
  double dropout;                ///< 0 outside training.
};
TransformerSizes transformer_sizes(const ModelInputs& inputs);

/// Returns the dataset's "tokens". Makes the builder refuse (kUsage) a number of heads that does not divide the
/// features, tokens that are not i32[B,T] with T <= sequence_length, and ids outside the vocabulary.
TensorId tokens(Builder& builder, const ModelInputs& inputs, const TransformerSizes& sizes);

/// Returns a mask to add to attention scores. It hides the tokens (padding) whose "attention_mask" i32[B,T] is 0, as in
/// Hugging Face's models. Returns nothing if the dataset has no "attention_mask". Makes the builder refuse (kUsage) an
/// "attention_mask" whose type differs from that of the tokens.
std::optional<TensorId> attention_mask(Builder& builder, const ModelInputs& inputs, TensorId tokens);

/// If the model is scored, makes the builder refuse (kUsage) "labels" whose type differs from that of the tokens.
void check_next_tokens(Builder& builder, const ModelInputs& inputs, TensorId tokens);

/// Makes the builder refuse (kUsage) a number of heads that does not divide the features.
void check_heads(Builder& builder, std::int64_t heads, std::int64_t hidden);

/// Returns the parameter called `name`, of shape [rows, features].
TensorId embedding_table(Builder& builder, const std::string& name, std::int64_t rows, std::int64_t features,
                         double deviation = kTransformerDeviation);

/// Returns x with elements dropped at random, or x itself if the rate is 0.
TensorId dropout(Builder& builder, const std::string& name, TensorId x, double rate);

/// Returns the rows of `table` that i32 `ids` [...] select, as [..., features].
TensorId embed(Builder& builder, const std::string& name, TensorId table, TensorId ids);

/// Returns the first T rows of a table of positions, as [T, features].
TensorId positions(Builder& builder, const std::string& name, TensorId table, std::int64_t T);

/// Adds layer normalisation over the last dimension. The initial weights are 1.
TensorId layer_norm(Builder& builder, const std::string& name, TensorId x, double epsilon);

/// Adds root mean square normalisation over the last dimension, NAME.weight only. The initial weights are 1.
TensorId rms_norm(Builder& builder, const std::string& name, TensorId x, double epsilon);

/// A dense layer from [...,I] to [...,features].
struct DenseOptions {
  std::int64_t features;
  bool input_major = false;  ///< Whether the weight is stored as [I, features].
  double deviation = kTransformerDeviation;
  bool bias = true;
};
TensorId dense(Builder& builder, const std::string& name, TensorId x, const DenseOptions& options);

/// Queries [B,h,T,d], keys and values [B,k,S,d], and how the scores [B,h,T,S] are changed before softmax. k divides h:
/// h / k consecutive heads of queries share a head of keys and values (grouped-query attention).
struct AttentionInputs {
  TensorId query;
  TensorId key;
  TensorId value;
  bool causal = false;                ///< Whether each token sees only itself and earlier tokens (T = S).
  std::optional<TensorId> mask;       ///< The result of attention_mask(), for S tokens.
  double dropout = 0;                 ///< Dropout rate of the weights after softmax.
  std::optional<TensorId> bias = {};  ///< Added to the scores: [1,h,T,S].
  std::optional<double> scale = {};   ///< Factor of the products; by default, 1 / sqrt(d).
};

/// Computes softmax(scale query key^T) value and merges the heads: [B,T,h d].
TensorId attention(Builder& builder, const std::string& name, const AttentionInputs& inputs);

/// Splits x [B,T,H] into heads [B,h,T,d].
TensorId split_heads(Builder& builder, const std::string& name, TensorId x, std::int64_t heads);

}  // namespace poprun::layers
