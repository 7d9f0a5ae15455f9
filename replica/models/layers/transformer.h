#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "replica/models/layers/model.h"
#include "replica/ops/builder/builder.h"

/// Layers of transformers. Parameters are called NAME.weight and NAME.bias. Unless stated otherwise, initial weights
/// are normal with deviation 0.02, as in GPT-2 and BERT, and biases are 0.
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
  std::int64_t sequence_length;  ///< Longest sequence that has positions.
  double dropout;                ///< 0 outside training.
};
TransformerSizes transformer_sizes(const ModelInputs& inputs);

/// The dataset's "tokens". Makes the builder refuse (kUsage) a number of heads that does not divide the features,
/// tokens that are not i32[B,T] with T <= sequence_length, and ids outside the vocabulary.
TensorId tokens(Builder& builder, const ModelInputs& inputs, const TransformerSizes& sizes);

/// The mask that hides, when added to attention scores, tokens whose "attention_mask" i32[B,T] is 0 (padding), as in
/// Hugging Face's models; nothing if the dataset has none. Refuses (kUsage) masks that differ in type from the tokens.
std::optional<TensorId> attention_mask(Builder& builder, const ModelInputs& inputs, TensorId tokens);

/// Parameter NAME [rows, features].
TensorId embedding_table(Builder& builder, const std::string& name, std::int64_t rows, std::int64_t features);

/// x with elements dropped at random; x itself if the rate is 0.
TensorId dropout(Builder& builder, const std::string& name, TensorId x, double rate);

/// The rows of `table` selected by i32 `ids` [...]: [..., features].
TensorId embed(Builder& builder, const std::string& name, TensorId table, TensorId ids);

/// The first T rows of a table of positions: [T, features].
TensorId positions(Builder& builder, const std::string& name, TensorId table, std::int64_t T);

/// Layer normalisation over the last dimension; initial weight 1.
TensorId layer_norm(Builder& builder, const std::string& name, TensorId x, double epsilon);

/// x [...,I] to [...,features]. `input_major`: the weight is stored as [I, features].
struct DenseOptions {
  std::int64_t features;
  bool input_major = false;
  double deviation = kTransformerDeviation;
};
TensorId dense(Builder& builder, const std::string& name, TensorId x, const DenseOptions& options);

/// Queries, keys and values [B,h,T,d], and how the scores [B,h,T,T] are masked before softmax.
struct AttentionInputs {
  TensorId query;
  TensorId key;
  TensorId value;
  bool causal = false;           ///< No token sees a later one.
  std::optional<TensorId> mask;  ///< The result of attention_mask().
  double dropout = 0;            ///< Dropout rate of the weights after softmax.
};

/// softmax(query key^T / sqrt(d)) value, with the heads joined again: [B,T,H].
TensorId attention(Builder& builder, const std::string& name, const AttentionInputs& inputs);

/// x [B,T,H] cut into heads: [B,h,T,d].
TensorId split_heads(Builder& builder, const std::string& name, TensorId x, std::int64_t heads);

}  // namespace poprun::layers
