#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "replica/models/model.h"
#include "replica/ops/builder/builder.h"

/// Layers of transformers. Parameters are called NAME.weight and NAME.bias; weights start normal
/// with deviation 0.02 as GPT-2's and BERT's do, unless said otherwise, biases at 0.
///
///   B  sequences    T  tokens    H  features    h  heads of d = H / h features
namespace poprun::layers {

inline constexpr double kTransformerDeviation = 0.02;

/// A transformer as train.cfg sizes it.
struct TransformerSizes {
  std::int64_t layers;
  std::int64_t hidden;
  std::int64_t heads;
  std::int64_t vocabulary;
  std::int64_t sequence_length;  ///< Longest that there are positions for.
  double dropout;                ///< 0 outside training.
};
TransformerSizes transformer_sizes(const ModelInputs& inputs);

/// The dataset's "tokens". Makes the builder refuse (kUsage) heads that do not divide the features,
/// tokens that are not i32[B,T] with T <= sequence_length, and ids beyond the vocabulary.
TensorId tokens(Builder& builder, const ModelInputs& inputs, const TransformerSizes& sizes);

/// What is added to scores so that no token sees those where the dataset's "attention_mask"
/// i32[B,T] has 0, as Hugging Face's models do: padding behind the text; nothing where the dataset
/// has none. Makes the builder refuse (kUsage) a mask that is not of the type of the tokens.
std::optional<TensorId> attention_mask(Builder& builder, const ModelInputs& inputs,
                                       TensorId tokens);

/// Parameter NAME [rows, features].
TensorId embedding_table(Builder& builder, const std::string& name, std::int64_t rows,
                         std::int64_t features);

/// x with elements dropped at random; x itself where the rate is 0.
TensorId dropout(Builder& builder, const std::string& name, TensorId x, double rate);

/// Rows of `table` by i32 numbers [...]: [..., features].
TensorId embed(Builder& builder, const std::string& name, TensorId table, TensorId ids);

/// The first T rows of a table of positions: [T, features].
TensorId positions(Builder& builder, const std::string& name, TensorId table, std::int64_t T);

/// Layer normalisation over the last dimension; starts with weight 1.
TensorId layer_norm(Builder& builder, const std::string& name, TensorId x, double epsilon);

/// x [...,I] to [...,features]. `input_major`: the weight lies [I, features].
struct DenseOptions {
  std::int64_t features;
  bool input_major = false;
  double deviation = kTransformerDeviation;
};
TensorId dense(Builder& builder, const std::string& name, TensorId x, const DenseOptions& options);

/// Queries, keys and values [B,h,T,d], and what is added to the scores [B,h,T,T] before softmax.
struct AttentionInputs {
  TensorId query;
  TensorId key;
  TensorId value;
  bool causal = false;           ///< No token sees a later one.
  std::optional<TensorId> mask;  ///< What attention_mask() returns.
  double dropout = 0;            ///< Of the weights behind softmax.
};

/// softmax(query key^T / sqrt(d)) value, heads put together again: [B,T,H].
TensorId attention(Builder& builder, const std::string& name, const AttentionInputs& inputs);

/// x [B,T,H] cut into heads: [B,h,T,d].
TensorId split_heads(Builder& builder, const std::string& name, TensorId x, std::int64_t heads);

}  // namespace poprun::layers
