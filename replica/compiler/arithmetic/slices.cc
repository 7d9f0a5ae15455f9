#include "replica/compiler/arithmetic/slices.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "replica/base/pattern.h"
#include "replica/base/text.h"
#include "replica/compiler/job/pass.h"
#include "replica/ops/builder/builder.h"
#include "replica/ops/face/kinds.h"

namespace poprun {

Result<std::vector<NamedLayer>> layers_named(std::string_view key, const SerialisationOptions::Layers& asked,
                                             const Job& job) {
  const Pattern pattern(asked.operators);
  std::vector<std::string> others;
  std::vector<NamedLayer> found;
  for (const Place place : forward_places(job)) {
    const std::vector<Operation>& operations = job.graph.at(place).operations;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      std::optional<Operation> layer =
          operations[i].outputs.empty() ? std::nullopt : as_linear(job.graph, operations[i]);
      if (!layer) {
        continue;
      }
      std::string name = job.graph.tensor(layer->outputs[0]).name;
      name.erase(0, name.starts_with(kEvaluationPrefix) ? kEvaluationPrefix.size() : 0);
      if (pattern.finds(name)) {
        found.push_back({place, i, *std::move(layer), std::move(name)});
      } else {
        others.push_back(std::move(name));
      }
    }
  }
  if (found.empty()) {
    const std::string close = nearest(asked.operators, others);
    return fail(ErrorCode::kUsage,
                fmt::format("{}: {}: no dense layer in the model has a matching name; {}", key, asked.text,
                            others.empty()  ? "the model has no dense layers"
                            : close.empty() ? fmt::format("available: {}", others.front())
                                            : fmt::format("did you mean {}?", close)));
  }
  return found;
}

}  // namespace poprun

/// Divides the operations marked by "serialisation", and their gradients, into slices that run one after the other, so
/// that only one slice's temporary values and gradients are live at a time. For slice k of the output channels:
///
///   y = x w^T + b       y_k = x w_k^T + b_k, each inserted into y
///   dw = dy^T x         dw_k = dy_k^T x; joined by a `concat` that aliases the slices
///   dx = dy w           dx = (dx_0 + dx_1) + ..., dx_k = dy_k w_k
///   gather_gradient     the rows of each slice of the table
///
/// A layer's dw_k and dx_k are computed together. Gathers are not sliced, because they read the table in place. Only
/// the sum of the dx_k differs from the result without slices, by rounding.
namespace poprun::passes::slices {
namespace {

constexpr std::string_view kName = "slices";

bool is_cut(const Operation& operation) {
  return operation.attributes.has(kSlices) && operation.attributes.integer(kSlices) > 1 &&
         operation.kind != kinds::kGather && (operation.kind != kinds::kGatherGradient || operation.inputs.size() == 2);
}

Attributes without_mark(const Attributes& attributes) {
  Attributes rest;
  for (const auto& [name, value] : attributes.values()) {
    if (name != kSlices) {
      rest.set(name, value);
    }
  }
  return rest;
}

Attributes part(std::int64_t axis, const Piece& piece) {
  return {{"axis", axis}, {"begin", piece.begin}, {"count", piece.count}};
}

std::int64_t channel_axis(const Attributes& attributes) {
  return is_set(attributes, kInputMajor) ? 1 : 0;
}

std::int64_t last_axis(const TensorType& type) {
  return static_cast<std::int64_t>(type.shape.size()) - 1;
}

class Slicer {
 public:
  Slicer(Graph& graph, Place place)
      : graph_(graph), operations_(std::move(graph.at(place).operations)), out_(graph, place, "") {}

  Status run() {
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const Operation& operation = operations_[i];
      out_.set_origin(operation.origin);
      if (!is_cut(operation)) {
        Operation whole = operation;
        whole.attributes = without_mark(operation.attributes);
        out_.append(std::move(whole));
      } else if (operation.kind == kinds::kLinear) {
        forward(operation);
      } else if (operation.kind == kinds::kLinearWeightGradient) {
        const bool both = i + 1 < operations_.size() && is_cut(operations_[i + 1]) &&
                          operations_[i + 1].kind == kinds::kLinearInputGradient &&
                          operations_[i + 1].inputs[0] == operation.inputs[1];
        backward(&operation, both ? &operations_[++i] : nullptr);
      } else if (operation.kind == kinds::kLinearInputGradient) {
        backward(nullptr, &operation);
      } else {
        table_gradient(operation);
      }
    }
    return out_.status();
  }

 private:
  TensorId add(const std::string& kind, std::vector<TensorId> inputs, Attributes attributes, TensorId like,
               const std::string& what, std::size_t k) {
    return add_all(kind, std::move(inputs), std::move(attributes), {like}, what, k)[0];
  }

  std::vector<TensorId> add_all(const std::string& kind, std::vector<TensorId> inputs, Attributes attributes,
                                const std::vector<TensorId>& like, const std::string& what, std::size_t k) {
    std::vector<std::string> names;
    for (const TensorId id : like) {
      names.push_back(fmt::format("{}.{}{}", graph_.tensor(id).name, what, k));
    }
    std::vector<TensorId> made = out_.add(kind, std::move(inputs), std::move(attributes), names);
    for (std::size_t j = 0; out_.status() && j < like.size(); ++j) {
      graph_.set_role(made[j], graph_.tensor(like[j]).role == Role::kGradient ? Role::kGradient : Role::kActivation);
      if (graph_.tensor(like[j]).keeps_f32) {
        graph_.keep_f32(made[j]);
      }
    }
    return made;
  }

  TensorId slice(TensorId x, std::int64_t axis, const Piece& piece, TensorId of, std::string what, std::size_t k) {
    const TensorId made = add(kinds::kSlice, {x}, part(axis, piece), of, what, k);
    if (out_.status() && graph_.tensor(x).keeps_f32) {
      graph_.keep_f32(made);
    }
    return made;
  }

  void forward(const Operation& operation) {
    const Attributes attributes = without_mark(operation.attributes);
    const TensorId y = operation.outputs[0];
    const std::int64_t axis = last_axis(out_.type(y));
    const std::int64_t channels = out_.type(y).shape.back();
    const auto pieces = pieces_of(channels, operation.attributes.integer(kSlices));
    std::optional<TensorId> so_far;
    for (std::size_t k = 0; k < pieces.size(); ++k) {
      std::vector<TensorId> inputs = {operation.inputs[0],
                                      slice(operation.inputs[1], channel_axis(attributes), pieces[k], y, "weight", k)};
      if (operation.inputs.size() == 3) {
        inputs.push_back(slice(operation.inputs[2], 0, pieces[k], y, "bias", k));
      }
      const TensorId made = add(kinds::kLinear, inputs, attributes, y, "slice", k);
      if (!so_far) {
        Attributes whole = part(axis, pieces[k]);
        whole.set("size", channels);
        so_far = add(kinds::kSliceGradient, {made}, whole, y, "slices", k);
        continue;
      }
      const Attributes place = {{"axis", axis}, {"begin", pieces[k].begin}};
      if (k + 1 == pieces.size()) {
        out_.update(kinds::kInsert, {*so_far, made}, place, {y});
      } else {
        so_far = add(kinds::kInsert, {*so_far, made}, place, y, "slices", k);
      }
    }
  }

  void backward(const Operation* weights, const Operation* input) {
    const TensorId dy = weights != nullptr ? weights->inputs[1] : input->inputs[0];
    const Operation& one = weights != nullptr ? *weights : *input;
    const TensorType type = out_.type(dy);
    const auto pieces = pieces_of(type.shape.back(), one.attributes.integer(kSlices));
    std::vector<std::vector<TensorId>> dw(weights != nullptr ? weights->outputs.size() : 0);
    std::optional<TensorId> dx;
    for (std::size_t k = 0; k < pieces.size(); ++k) {
      const TensorId dy_k = slice(dy, last_axis(type), pieces[k], one.outputs[0], "dy", k);
      if (weights != nullptr) {
        const auto made = add_all(weights->kind, {weights->inputs[0], dy_k}, without_mark(weights->attributes),
                                  weights->outputs, "slice", k);
        for (std::size_t j = 0; j < dw.size(); ++j) {
          dw[j].push_back(made[j]);
        }
      }
      if (input != nullptr) {
        dx = add_input_slice(*input, dy_k, pieces, k, dx);
      }
    }
    for (std::size_t j = 0; j < dw.size(); ++j) {
      join(dw[j], j == 0 ? channel_axis(weights->attributes) : 0, weights->outputs[j]);
    }
  }

  TensorId add_input_slice(const Operation& input, TensorId dy_k, const std::vector<Piece>& pieces, std::size_t k,
                           std::optional<TensorId> so_far) {
    const Attributes attributes = without_mark(input.attributes);
    const TensorId dx = input.outputs[0];
    const TensorId w = slice(input.inputs[1], channel_axis(attributes), pieces[k], dx, "weight", k);
    const TensorId made = add(input.kind, {dy_k, w}, attributes, dx, "slice", k);
    if (!so_far) {
      return made;
    }
    if (k + 1 == pieces.size()) {
      out_.update(kinds::kAdd, {*so_far, made}, {}, {dx});
      return dx;
    }
    return add(kinds::kAdd, {*so_far, made}, {}, dx, "slices", k);
  }

  void table_gradient(const Operation& operation) {
    Attributes attributes = without_mark(operation.attributes);
    const Shape whole = attributes.integers("input_shape");
    std::vector<TensorId> made;
    const auto pieces = pieces_of(whole[0], operation.attributes.integer(kSlices));
    for (std::size_t k = 0; k < pieces.size(); ++k) {
      Shape shape = whole;
      shape[0] = pieces[k].count;
      attributes.set("input_shape", shape);
      attributes.set("begin", pieces[k].begin);
      attributes.set("whole", whole[0]);
      made.push_back(add(operation.kind, operation.inputs, attributes, operation.outputs[0], "slice", k));
    }
    join(made, 0, operation.outputs[0]);
  }

  void join(const std::vector<TensorId>& slices, std::int64_t axis, TensorId whole) {
    Attributes attributes{{"axis", axis}};
    attributes.set(kSlices, static_cast<std::int64_t>(slices.size()));
    out_.update(kinds::kConcat, slices, attributes, {whole});
  }

  Graph& graph_;
  std::vector<Operation> operations_;
  Builder out_;
};

Status run(const CompileOptions& /*options*/, Job& job) {
  for (const Place place : forward_places(job)) {
    POPRUN_TRY(Slicer(job.graph, place).run());
  }
  return {};
}

/// The slices of one marked operation, found by tracing its output backwards.
struct Found {
  std::vector<Piece> pieces;
  std::string wrong;  ///< The error that was found; empty if there is none.
};

class Finder {
 public:
  Finder(const Graph& graph, Place place) : graph_(graph), writers_(graph, place) {}

  /// Finds the slices that compute `y` = x w^T + b, beginning with the last.
  [[nodiscard]] Found layer(const Operation& was) const {
    Found found;
    const Operation* maker = writer(was.outputs[0]);
    while (maker != nullptr && (maker->kind == kinds::kInsert || maker->kind == kinds::kSliceGradient)) {
      const Operation* product = writer(maker->inputs.back());
      check_product(product, was, found, maker->attributes.integer("begin"));
      maker = maker->kind == kinds::kInsert ? writer(maker->inputs[0]) : nullptr;
    }
    if (maker != nullptr) {
      check_product(maker, was, found, 0);
    }
    std::reverse(found.pieces.begin(), found.pieces.end());
    return found;
  }

  /// Finds the slices that compute dx = dy w, a sum of products, beginning with the last.
  [[nodiscard]] Found input_gradient(const Operation& was) const {
    Found found;
    const Operation* maker = writer(was.outputs[0]);
    while (maker != nullptr && maker->kind == kinds::kAdd) {
      check_gradient(writer(maker->inputs[1]), was, found);
      maker = writer(maker->inputs[0]);
    }
    check_gradient(maker, was, found);
    std::reverse(found.pieces.begin(), found.pieces.end());
    return found;
  }

  [[nodiscard]] Found joined(const Operation& was, std::size_t output) const {
    Found found;
    const Operation* join = writer(was.outputs[output]);
    if (join == nullptr || join->kind != kinds::kConcat) {
      found.wrong = "is not a concatenation of its slices";
      return found;
    }
    for (const TensorId id : join->inputs) {
      const Operation* made = writer(id);
      if (made == nullptr || made->kind != was.kind) {
        found.wrong = "is a concatenation of tensors other than its slices";
      } else if (was.kind == kinds::kGatherGradient) {
        found.wrong = made->inputs == was.inputs ? found.wrong : "is computed from different operands";
        found.pieces.push_back({made->attributes.integer("begin"), size_of(id, 0)});
      } else {
        found.wrong = made->inputs[0] == was.inputs[0] ? found.wrong : "is computed from a different x";
        found.pieces.push_back(sliced(made->inputs[1], was.inputs[1], found));
      }
    }
    return found;
  }

 private:
  [[nodiscard]] const Operation* writer(TensorId id) const {
    const auto& all = writers_.of(id);
    return all.size() == 1 ? all[0] : nullptr;
  }
  [[nodiscard]] std::int64_t size_of(TensorId id, std::size_t axis) const { return graph_.tensor(id).type.shape[axis]; }

  [[nodiscard]] Piece sliced(TensorId id, TensorId whole, Found& found) const {
    const Operation* slice = writer(id);
    if (slice == nullptr || slice->kind != kinds::kSlice || slice->inputs[0] != whole) {
      found.wrong = fmt::format("does not read a slice of '{}'", graph_.tensor(whole).name);
      return {};
    }
    return {slice->attributes.integer("begin"), slice->attributes.integer("count")};
  }

  void check_product(const Operation* made, const Operation& was, Found& found, std::int64_t begin) const {
    if (made == nullptr || made->kind != kinds::kLinear || made->inputs[0] != was.inputs[0]) {
      found.wrong = "has a slice that is not a product with x";
      return;
    }
    for (std::size_t i = 1; i < made->inputs.size(); ++i) {
      const Piece piece = sliced(made->inputs[i], was.inputs[i], found);
      if (piece.begin != begin) {
        found.wrong = "has a slice at the wrong offset";
      }
      if (i == 1) {
        found.pieces.push_back(piece);
      }
    }
  }

  void check_gradient(const Operation* made, const Operation& was, Found& found) const {
    if (made == nullptr || made->kind != was.kind) {
      found.wrong = "is a sum of tensors other than its slices";
      return;
    }
    const Piece of_dy = sliced(made->inputs[0], was.inputs[0], found);
    const Piece of_w = sliced(made->inputs[1], was.inputs[1], found);
    if (of_dy != of_w) {
      found.wrong = "multiplies different slices";
    }
    found.pieces.push_back(of_dy);
  }

  const Graph& graph_;
  Writers writers_;
};

/// Checks that every marked operation's result consists of consecutive slices without gaps.
Status verify(const CompileOptions& /*options*/, const Job& before, const Job& after) {
  for (const Place place : forward_places(before)) {
    const Finder finder(after.graph, place);
    for (const Operation& was : before.graph.at(place).operations) {
      for (std::size_t output = 0; is_cut(was) && output < was.outputs.size(); ++output) {
        const Found found = was.kind == kinds::kLinear                ? finder.layer(was)
                            : was.kind == kinds::kLinearInputGradient ? finder.input_gradient(was)
                                                                      : finder.joined(was, output);
        const TensorType& all = before.graph
                                    .tensor(was.kind == kinds::kLinearWeightGradient  ? was.inputs[1]
                                            : was.kind == kinds::kLinearInputGradient ? was.inputs[0]
                                                                                      : was.outputs[0])
                                    .type;
        const std::int64_t channels = was.kind == kinds::kGatherGradient ? all.shape.front() : all.shape.back();
        std::int64_t end = 0;
        for (const Piece& piece : found.pieces) {
          end = piece.begin == end ? end + piece.count : -1;
        }
        if (!found.wrong.empty() || end != channels) {
          return pass_bug(kName, after.graph, was.outputs[output],
                          found.wrong.empty() ? "does not consist of all its slices" : found.wrong);
        }
      }
    }
  }
  return {};
}

}  // namespace

Pass pass() {
  return {kName, is_serialised, run, verify};
}

}  // namespace poprun::passes::slices
