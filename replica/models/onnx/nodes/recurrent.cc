#include "replica/models/layers/recurrent.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/models/onnx/node.h"

/// LSTM, GRU and RNN, unrolled over the steps of the sequence:
///
///   x [S,N,I] --W--> gates of all steps [S,N,G H]     one product
///   step t:  gates[t] + h R^T  -->  h [N,H], and c [N,H] in an LSTM
namespace poprun::onnx_import::nodes::recurrent {
namespace {

constexpr std::size_t kW = 1;
constexpr std::size_t kR = 2;
constexpr std::size_t kBias = 3;
constexpr std::size_t kLengths = 4;
constexpr std::size_t kFirstH = 5;
constexpr std::size_t kFirstC = 6;
constexpr std::size_t kPeepholes = 7;

struct State {
  TensorId h;
  std::optional<TensorId> c = {};
};

/// One direction of a layer.
class Direction {
 public:
  /// `gates` is the number of matrices in W, and `functions` are our operators for the activations.
  Direction(Node& node, std::int64_t index, std::int64_t gates, std::vector<std::string> functions)
      : node_(node), index_(index), gates_(gates), functions_(std::move(functions)) {}

  /// Prepares x [S,N,I].
  Status prepare(TensorId x) {
    const Shape shape = node_.type(x).shape;
    steps_ = shape[0];
    batch_ = shape[1];
    hidden_ = node_.shape(kR)[2];
    POPRUN_ASSIGN(const TensorId w, own(kW));
    POPRUN_ASSIGN(r_, own(kR));
    POPRUN_ASSIGN(const TensorId flat, node_.reshape(x, {steps_ * batch_, shape[2]}));
    POPRUN_ASSIGN(projected_, node_.matmul(flat, w, /*transpose_b=*/true));
    if (node_.has(kBias)) {
      POPRUN_ASSIGN(const TensorId bias, own(kBias));  // The biases of W, then those of R.
      POPRUN_ASSIGN(const TensorId of_w, part(bias, 0, 0, gates_ * hidden_));
      POPRUN_ASSIGN(of_r_, part(bias, 0, gates_ * hidden_, gates_ * hidden_));
      POPRUN_ASSIGN(projected_, node_.add("add", {projected_, of_w}));
    }
    if (resets_state()) {
      POPRUN_ASSIGN(gates_of_h_, recurrence(0, 2));
      POPRUN_ASSIGN(fresh_of_h_, recurrence(2, 1));
    } else {
      POPRUN_ASSIGN(gates_of_h_, recurrence(0, gates_));
    }
    if (node_.has(kPeepholes)) {
      POPRUN_ASSIGN(const TensorId weights, own(kPeepholes));
      for (std::size_t k = 0; k < peepholes_.size(); ++k) {
        POPRUN_ASSIGN(peepholes_[k], part(weights, 0, static_cast<std::int64_t>(k) * hidden_, hidden_));
      }
    }
    return {};
  }

  /// Returns the state before the first step: that of input i, or zero.
  Result<TensorId> first(std::size_t i) {
    if (!node_.has(i)) {
      return node_.fill({batch_, hidden_}, 0);
    }
    return own(i);
  }

  [[nodiscard]] std::int64_t steps() const { return steps_; }

  Result<State> lstm(std::int64_t t, const State& before) {
    POPRUN_ASSIGN(const TensorId all, gates_of(t, before.h));
    POPRUN_ASSIGN(TensorId in, gate(all, 0));
    POPRUN_ASSIGN(const TensorId out, gate(all, 1));
    POPRUN_ASSIGN(TensorId forget, gate(all, 2));
    POPRUN_ASSIGN(const TensorId fresh, gate(all, 3));
    POPRUN_ASSIGN(in, with_peephole(in, 0, *before.c));
    POPRUN_ASSIGN(forget, with_peephole(forget, 2, *before.c));
    const layers::StepName name = [this](std::string_view /*what*/) { return node_.free_name(); };
    const layers::LstmState after =
        layers::lstm_cell(node_.builder(), name, {.in = in, .forget = forget, .fresh = fresh, .out = out}, *before.c,
                          {functions_.at(0), functions_.at(1), functions_.at(2)}, peepholes_.at(1));
    POPRUN_TRY(node_.builder().status());
    return State{after.h, after.c};
  }

  Result<State> gru(std::int64_t t, const State& before) {
    POPRUN_ASSIGN(const TensorId x, step_of(t));
    POPRUN_ASSIGN(const TensorId recurrent, of_state(before.h, gates_of_h_));
    const auto sum = [&](std::int64_t k) -> Result<TensorId> {
      POPRUN_ASSIGN(const TensorId a, gate(x, k));
      POPRUN_ASSIGN(const TensorId b, gate(recurrent, k));
      POPRUN_ASSIGN(const TensorId both, node_.add("add", {a, b}));
      return apply(0, both);
    };
    POPRUN_ASSIGN(const TensorId update, sum(0));
    POPRUN_ASSIGN(const TensorId reset, sum(1));
    POPRUN_ASSIGN(TensorId fresh, gate(x, 2));
    TensorId past{};
    if (resets_state()) {
      POPRUN_ASSIGN(const TensorId kept, node_.add("mul", {reset, before.h}));
      POPRUN_ASSIGN(past, of_state(kept, fresh_of_h_));
    } else {
      POPRUN_ASSIGN(past, gate(recurrent, 2));
      POPRUN_ASSIGN(past, node_.add("mul", {reset, past}));
    }
    POPRUN_ASSIGN(fresh, node_.add("add", {fresh, past}));
    POPRUN_ASSIGN(fresh, apply(1, fresh));
    // (1 - z) fresh + z h = fresh + z (h - fresh)
    POPRUN_ASSIGN(const TensorId difference, node_.add("sub", {before.h, fresh}));
    POPRUN_ASSIGN(const TensorId kept, node_.add("mul", {update, difference}));
    POPRUN_ASSIGN(const TensorId h, node_.add("add", {fresh, kept}));
    return State{h};
  }

  Result<State> rnn(std::int64_t t, const State& before) {
    POPRUN_ASSIGN(const TensorId sum, gates_of(t, before.h));
    POPRUN_ASSIGN(const TensorId h, apply(0, sum));
    return State{h};
  }

 private:
  Result<TensorId> part(TensorId x, std::int64_t axis, std::int64_t begin, std::int64_t count) {
    if (node_.type(x).shape[static_cast<std::size_t>(axis)] == count) {
      return x;
    }
    return node_.slice(x, axis, begin, count);
  }

  /// Returns this direction's part of input i, whose first axis counts directions.
  Result<TensorId> own(std::size_t i) {
    POPRUN_ASSIGN(TensorId x, i == kFirstH || i == kFirstC ? node_.row_major(i) : node_.weight(i));
    POPRUN_ASSIGN(x, node_.row_major_of(x));
    if ((i == kFirstH || i == kFirstC) && node_.integer("layout", 0) != 0) {
      POPRUN_ASSIGN(x, node_.transpose(x, {1, 0, 2}));
    }
    const Shape shape = node_.type(x).shape;
    POPRUN_ASSIGN(x, part(x, 0, index_, 1));
    return node_.reshape(x, Shape(shape.begin() + 1, shape.end()));
  }

  /// Rows of R for some gates, and the bias of R for them.
  struct Recurrence {
    TensorId r;
    std::optional<TensorId> bias;
  };

  Result<Recurrence> recurrence(std::int64_t first, std::int64_t count) {
    Recurrence rows{};
    POPRUN_ASSIGN(rows.r, part(r_, 0, first * hidden_, count * hidden_));
    if (of_r_) {
      POPRUN_ASSIGN(rows.bias, part(*of_r_, 0, first * hidden_, count * hidden_));
    }
    return rows;
  }

  Result<TensorId> of_state(TensorId h, const Recurrence& rows) {
    POPRUN_ASSIGN(const TensorId y, node_.matmul(h, rows.r, /*transpose_b=*/true));
    return rows.bias ? node_.add("add", {y, *rows.bias}) : Result<TensorId>{y};
  }

  Result<TensorId> step_of(std::int64_t t) { return part(projected_, 0, t * batch_, batch_); }

  Result<TensorId> gates_of(std::int64_t t, TensorId h) {
    POPRUN_ASSIGN(const TensorId x, step_of(t));
    POPRUN_ASSIGN(const TensorId recurrent, of_state(h, gates_of_h_));
    return node_.add("add", {x, recurrent});
  }

  Result<TensorId> gate(TensorId all, std::int64_t k) { return part(all, 1, k * hidden_, hidden_); }

  Result<TensorId> apply(std::size_t k, TensorId x) { return node_.add(functions_.at(k), {x}); }

  /// In the order of the gates i, o, f.
  Result<TensorId> with_peephole(TensorId x, std::size_t k, TensorId c) {
    if (!peepholes_.at(k)) {
      return x;
    }
    POPRUN_ASSIGN(const TensorId seen, node_.add("mul", {c, *peepholes_[k]}));
    return node_.add("add", {x, seen});
  }

  /// Returns whether a GRU resets the state before the product with R, rather than after it.
  [[nodiscard]] bool resets_state() const { return gates_ == 3 && node_.integer("linear_before_reset", 0) == 0; }

  Node& node_;
  std::int64_t index_;
  std::int64_t gates_;
  std::vector<std::string> functions_;
  std::int64_t steps_ = 0;
  std::int64_t batch_ = 0;
  std::int64_t hidden_ = 0;
  TensorId r_{};
  std::optional<TensorId> of_r_;
  Recurrence gates_of_h_{};  ///< The part of the gates that every step computes from the state.
  Recurrence fresh_of_h_{};  ///< The part of the last gate, if resets_state().
  std::array<std::optional<TensorId>, 3> peepholes_;
  TensorId projected_{};  ///< [S N, G H]
};

struct Kind {
  std::int64_t gates;
  std::vector<std::string> functions;  ///< The defaults, as ONNX names them.
  Result<State> (Direction::*step)(std::int64_t t, const State& before);
  bool has_cell;
};

/// Returns our operators for the activations of direction d.
Result<std::vector<std::string>> functions_of(Node& node, const Kind& kind, std::size_t d) {
  std::vector<std::string> names = kind.functions;
  std::size_t k = 0;
  for (const auto& attribute : node.proto().attribute()) {
    if (attribute.name() == "activations") {
      for (std::string& name : names) {
        const auto at = static_cast<int>(d * names.size() + k++);
        name = at < attribute.strings_size() ? attribute.strings(at) : name;
      }
    }
  }
  for (std::string& name : names) {
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (name != "sigmoid" && name != "tanh" && name != "relu") {
      return node.unsupported(fmt::format("the activation {}; available: Sigmoid, Tanh, Relu", name));
    }
  }
  return names;
}

Status check_shape(Node& node, std::size_t i, const char* name, const Shape& wanted) {
  if (node.has(i) && node.shape(i) != wanted) {
    return node.wrong(fmt::format("{} has the shape [{}], but needs [{}]", name, fmt::join(node.shape(i), ","),
                                  fmt::join(wanted, ",")));
  }
  return {};
}

Status check(Node& node, const Kind& kind, std::int64_t directions) {
  if (node.shape(0).size() != 3 || node.shape(kR).size() != 3) {
    return node.wrong("needs x [S,N,I] and R [directions,gates H,H]");
  }
  const bool batch_first = node.integer("layout", 0) != 0;
  const std::int64_t steps = node.shape(0)[batch_first ? 1 : 0];
  const std::int64_t batch = node.shape(0)[batch_first ? 0 : 1];
  const std::int64_t hidden = node.shape(kR)[2];
  const Shape state = batch_first ? Shape{batch, directions, hidden} : Shape{directions, batch, hidden};
  POPRUN_TRY(check_shape(node, kW, "W", {directions, kind.gates * hidden, node.shape(0)[2]}));
  POPRUN_TRY(check_shape(node, kR, "R", {directions, kind.gates * hidden, hidden}));
  POPRUN_TRY(check_shape(node, kBias, "B", {directions, 2 * kind.gates * hidden}));
  POPRUN_TRY(check_shape(node, kFirstH, "initial_h", state));
  POPRUN_TRY(check_shape(node, kFirstC, "initial_c", state));
  POPRUN_TRY(check_shape(node, kPeepholes, "P", {directions, 3 * hidden}));
  if (node.has(kLengths)) {
    POPRUN_ASSIGN(const auto lengths, node.integers_of(kLengths));
    if (std::ranges::any_of(lengths, [steps](std::int64_t length) { return length != steps; })) {
      return node.unsupported("sequence_lens other than the whole length; pad the sequences, and mask what is padded");
    }
  }
  if (node.has_attribute("clip") || node.integer("input_forget", 0) != 0) {
    return node.unsupported("clip or input_forget");
  }
  return {};
}

/// Joins tensors along a new first axis.
Result<TensorId> stacked(Node& node, std::vector<TensorId> parts) {
  for (TensorId& part : parts) {
    Shape shape = node.type(part).shape;
    shape.insert(shape.begin(), 1);
    POPRUN_ASSIGN(part, node.reshape(part, shape));
  }
  return parts.size() == 1 ? Result<TensorId>{parts[0]} : node.add("concat", parts, {{"axis", std::int64_t{0}}});
}

Status layer(Node& node, const Kind& kind) {
  const std::string direction = node.text("direction", "forward");
  const std::int64_t directions = direction == "bidirectional" ? 2 : 1;
  POPRUN_TRY(check(node, kind, directions));
  const bool batch_first = node.integer("layout", 0) != 0;
  POPRUN_ASSIGN(TensorId x, node.row_major(0));
  if (batch_first) {
    POPRUN_ASSIGN(x, node.transpose(x, {1, 0, 2}));
  }
  std::vector<TensorId> outputs;
  std::vector<TensorId> last_h;
  std::vector<TensorId> last_c;
  for (std::int64_t d = 0; d < directions; ++d) {
    POPRUN_ASSIGN(std::vector<std::string> functions, functions_of(node, kind, static_cast<std::size_t>(d)));
    Direction one(node, d, kind.gates, std::move(functions));
    POPRUN_TRY(one.prepare(x));
    State state{};
    POPRUN_ASSIGN(state.h, one.first(kFirstH));
    if (kind.has_cell) {
      POPRUN_ASSIGN(state.c, one.first(kFirstC));
    }
    const bool reverse = direction == "reverse" || d == 1;
    std::vector<TensorId> shown(static_cast<std::size_t>(one.steps()));
    for (std::int64_t k = 0; k < one.steps(); ++k) {
      const std::int64_t t = reverse ? one.steps() - 1 - k : k;
      POPRUN_ASSIGN(state, (one.*kind.step)(t, state));
      shown[static_cast<std::size_t>(t)] = state.h;
    }
    POPRUN_ASSIGN(const TensorId all, stacked(node, std::move(shown)));
    outputs.push_back(all);
    last_h.push_back(state.h);
    if (state.c) {
      last_c.push_back(*state.c);
    }
  }
  POPRUN_ASSIGN(TensorId y, stacked(node, std::move(outputs)));  // [directions,S,N,H]
  const std::vector<std::int64_t> order = batch_first ? Shape{2, 1, 0, 3} : Shape{1, 0, 2, 3};
  POPRUN_ASSIGN(y, node.transpose(y, order));
  node.set(0, y);
  std::size_t k = 1;
  for (std::vector<TensorId>* last : {&last_h, &last_c}) {
    if (!last->empty() && node.wants_output(k)) {
      POPRUN_ASSIGN(TensorId end, stacked(node, *last));
      if (batch_first) {
        POPRUN_ASSIGN(end, node.transpose(end, {1, 0, 2}));
      }
      node.set(k, end);
    }
    ++k;
  }
  return {};
}

}  // namespace

std::vector<Translator> translators() {
  return {{"LSTM", 3,
           [](Node& node) {
             return layer(node, {4, {"Sigmoid", "Tanh", "Tanh"}, &Direction::lstm, true});
           }},
          {"GRU", 3,
           [](Node& node) {
             return layer(node, {3, {"Sigmoid", "Tanh"}, &Direction::gru, false});
           }},
          {"RNN", 3, [](Node& node) {
             return layer(node, {1, {"Tanh"}, &Direction::rnn, false});
           }}};
}

}  // namespace poprun::onnx_import::nodes::recurrent
