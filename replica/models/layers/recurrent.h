#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "replica/ops/builder/builder.h"

/// Recurrent layers, unrolled over the steps of the sequence.
///
///   S  steps    N  sequences    I  input features    H  hidden features
namespace poprun::layers {

/// The sums that go into the gates of one step of an LSTM (Hochreiter and Schmidhuber, 1997), each [N,H].
struct LstmGates {
  TensorId in;
  TensorId forget;
  TensorId fresh;
  TensorId out;
};

struct LstmState {
  TensorId h;
  TensorId c;
};

/// Kinds of the operators for the gates, for the fresh value, and for the cell as it is shown.
struct LstmFunctions {
  std::string gate = "sigmoid";
  std::string fresh = "tanh";
  std::string shown = "tanh";
};

/// Returns the name of a new tensor, given what it is within the step ("in", "cell", ...).
using StepName = std::function<std::string(std::string_view)>;

/// Adds c' = forget c + in fresh and h' = out shown(c'). `peephole`, if given, is multiplied by c' and added to the sum
/// of the output gate.
LstmState lstm_cell(Builder& builder, const StepName& name, const LstmGates& sums, TensorId c,
                    const LstmFunctions& functions = {}, std::optional<TensorId> peephole = {});

/// Adds layer k of torch.nn.LSTM, from x [S N,I], step by step, to [S N,H]. The state is zero before the first step.
/// Parameters: NAME.weight_ih_lk [4 H,I], NAME.weight_hh_lk [4 H,H], NAME.bias_ih_lk and NAME.bias_hh_lk [4 H], in the
/// order in, forget, fresh, out; uniform in +-1/sqrt(H).
TensorId lstm_layer(Builder& builder, const std::string& name, std::int64_t k, TensorId x, std::int64_t steps,
                    std::int64_t hidden);

}  // namespace poprun::layers
