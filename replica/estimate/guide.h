#pragma once

#include <cstdint>

#include "replica/base/units.h"

/// The estimates of Graphcore's "Memory and Performance Optimisation on the IPU", section 3.4, as they are printed
/// there. They count numbers, not bytes, and give every number the same size.
namespace poprun::guide {

/// Table 3.1: parameters of one block.
///
///   convolution   kernel w x h, C channels (of a group), N filters    (w * h * C + 1) * N
///   dense layer   n inputs, p outputs                                 n * p weights, p biases
///   batch norm    n on the normalised axis   2n moving averages, and in training 2n scale and
///                                            location
///   layer norm    n inputs                   2n
///   embeddings    vocabulary N, hidden h     N * h
///
/// `biases` is false for blocks without biases, a case that the table does not cover: the 1 or the p is then left out.
constexpr std::int64_t convolution(std::int64_t w, std::int64_t h, std::int64_t C, std::int64_t N, bool biases = true) {
  return (w * h * C + (biases ? 1 : 0)) * N;
}
constexpr std::int64_t dense_layer(std::int64_t n, std::int64_t p, bool biases = true) {
  return n * p + (biases ? p : 0);
}
constexpr std::int64_t batch_norm(std::int64_t n, bool training) {
  return 2 * n + (training ? 2 * n : 0);
}
constexpr std::int64_t layer_norm(std::int64_t n) {
  return 2 * n;
}
constexpr std::int64_t embeddings(std::int64_t N, std::int64_t h) {
  return N * h;
}

/// Inputs of the formulas of sections 3.4.2 to 3.4.5.
struct Counts {
  std::int64_t weights = 0;
  std::int64_t biases = 0;
  std::int64_t non_trainable = 0;
  std::int64_t optimiser_states = 0;  ///< Used in training only, like `activations`.
  std::int64_t activations = 0;       ///< Per sample.
  std::int64_t compute_batch = 1;     ///< B_size
  std::int64_t bytes_per_number = 4;  ///< N_FP: 2 in half precision.

  /// N_gradients = N_activations * B_size
  [[nodiscard]] std::int64_t gradients() const { return activations * compute_batch; }

  /// N_backprop_vars = N_weights + N_biases + N_non_trainable + N_optimiser_states
  [[nodiscard]] std::int64_t backprop_vars() const { return weights + biases + non_trainable + optimiser_states; }

  /// (N_weights + N_biases + N_non_trainable) * N_FP
  [[nodiscard]] Bytes inference_total() const { return Bytes{(weights + biases + non_trainable) * bytes_per_number}; }

  /// (N_weights + N_biases + N_gradients + N_optimiser_states + N_backprop_vars) * N_FP
  ///
  /// As printed, it counts the optimiser states twice, since N_backprop_vars also contains them.
  [[nodiscard]] Bytes training_total() const {
    return Bytes{(weights + biases + gradients() + optimiser_states + backprop_vars()) * bytes_per_number};
  }

  /// The same total with the optimiser states counted once.
  [[nodiscard]] Bytes training_total_states_once() const {
    return Bytes{training_total().count() - optimiser_states * bytes_per_number};
  }
};

}  // namespace poprun::guide
