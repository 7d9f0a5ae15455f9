#include "replica/models/layers/recurrent.h"

#include <cmath>
#include <vector>

#include <fmt/format.h>

namespace poprun::layers {
namespace {

TensorId slice(Builder& builder, const std::string& name, TensorId x, std::int64_t axis, std::int64_t begin,
               std::int64_t count) {
  return builder.add_one("slice", {x}, {{"axis", axis}, {"begin", begin}, {"count", count}}, name);
}

}  // namespace

LstmState lstm_cell(Builder& builder, const StepName& name, const LstmGates& sums, TensorId c,
                    const LstmFunctions& functions, std::optional<TensorId> peephole) {
  const auto op = [&](const std::string& kind, const std::vector<TensorId>& operands, std::string_view what) {
    return builder.add_one(kind, operands, {}, name(what));
  };
  const TensorId in = op(functions.gate, {sums.in}, "in");
  const TensorId forget = op(functions.gate, {sums.forget}, "forget");
  const TensorId fresh = op(functions.fresh, {sums.fresh}, "fresh");
  const TensorId kept = op("mul", {forget, c}, "kept");
  const TensorId added = op("mul", {in, fresh}, "added");
  const TensorId cell = op("add", {kept, added}, "cell");
  TensorId sum = sums.out;
  if (peephole) {
    sum = op("add", {sum, op("mul", {cell, *peephole}, "seen")}, "out.sum");
  }
  const TensorId out = op(functions.gate, {sum}, "out");
  const TensorId shown = op(functions.shown, {cell}, "shown");
  return {.h = op("mul", {out, shown}, "hidden"), .c = cell};
}

TensorId lstm_layer(Builder& builder, const std::string& name, std::int64_t k, TensorId x, std::int64_t steps,
                    std::int64_t hidden) {
  if (!builder.status()) {
    return x;
  }
  const Shape shape = builder.type(x).shape;
  const std::int64_t N = shape.at(0) / steps;
  const auto parameter = [&](const std::string& kind, Shape of) {
    return builder.variable(
        fmt::format("{}.{}_l{}", name, kind, k), {DataType::kF32, std::move(of), Layout::kRowMajor}, Role::kParameter,
        {.distribution = Distribution::kUniform, .value = 1 / std::sqrt(static_cast<double>(hidden))});
  };
  const TensorId w = parameter("weight_ih", {4 * hidden, shape.at(1)});
  const TensorId r = parameter("weight_hh", {4 * hidden, hidden});
  const TensorId of_w = parameter("bias_ih", {4 * hidden});
  const TensorId of_r = parameter("bias_hh", {4 * hidden});
  const std::string layer = fmt::format("{}.l{}", name, k);
  const TensorId projected = builder.add_one("linear", {x, w, of_w}, {}, layer + ".projected");
  const auto zero = [&](const std::string& what) {
    return builder.add_one("fill", {}, {{"shape", Shape{N, hidden}}, {"value", 0.0}}, layer + what);
  };
  LstmState state{.h = zero(".h"), .c = zero(".c")};
  std::vector<TensorId> shown;
  for (std::int64_t t = 0; t < steps; ++t) {
    const StepName step = [&](std::string_view what) { return fmt::format("{}.{}.{}", layer, t, what); };
    const TensorId of_x = slice(builder, step("x"), projected, 0, t * N, N);
    const TensorId of_h = builder.add_one("linear", {state.h, r, of_r}, {}, step("recurrent"));
    const TensorId sums = builder.add_one("add", {of_x, of_h}, {}, step("sums"));
    const auto gate = [&](std::int64_t g, std::string_view what) {
      return slice(builder, step(what), sums, 1, g * hidden, hidden);
    };
    state = lstm_cell(builder, step,
                      {.in = gate(0, "in.sum"),
                       .forget = gate(1, "forget.sum"),
                       .fresh = gate(2, "fresh.sum"),
                       .out = gate(3, "out.sum")},
                      state.c);
    shown.push_back(state.h);
  }
  return shown.size() == 1 ? shown[0] : builder.add_one("concat", shown, {{"axis", std::int64_t{0}}}, layer);
}

}  // namespace poprun::layers
