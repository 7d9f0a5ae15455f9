#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/compiler/arithmetic/slices.h"
#include "replica/compiler/job/pass.h"
#include "replica/ops/builder/builder.h"
#include "replica/ops/face/kinds.h"

/// Computes dense layers in slices of the sequence, one after the other (model.serialised-sequence), so that temporary
/// values and, if a cross-entropy is all that reads the output, gradients of only one slice are live at a time. Slice k
/// of x [...,T,K] has the positions of piece k of T:
///
///   y = x w^T + b                               y_k = x_k w^T + b, joined by a `concat`
///   loss, correct, count = cross_entropy(y)     the loss of each y_k, joined by `join_losses`; y is not made
///
/// The pass comes before differentiation, so gradients are sliced, too. With `pipeline.recompute`, a slice's logits are
/// recomputed, so that those of only one slice are live. Only sums over positions differ, by rounding.
namespace poprun::passes::sequence_slices {
namespace {

constexpr std::string_view kName = "sequence-slices";
constexpr std::string_view kKey = "model.serialised-sequence";

bool applies(const CompileOptions& options) {
  return !options.serialisation.sequence.empty();
}

/// Returns the axis of the positions: the one before the last. Requires: the type has at least two dimensions.
std::int64_t positions_axis(const TensorType& type) {
  return static_cast<std::int64_t>(type.shape.size()) - 2;
}

/// The layers of one region that are cut, with the number of slices of each, keyed by output.
using Cuts = std::map<TensorId, std::int64_t>;

class Cutter {
 public:
  Cutter(Graph& graph, Place place, const Cuts& cuts)
      : graph_(graph), cuts_(cuts), operations_(std::move(graph.at(place).operations)), out_(graph, place, "") {
    for (const Operation& operation : operations_) {
      for (const TensorId id : operation.inputs) {
        readers_[id].push_back(&operation);
      }
    }
  }

  Status run() {
    std::map<TensorId, const Operation*> waiting;  // Layers that are cut together with their losses.
    for (const Operation& operation : operations_) {
      const bool cut = !operation.outputs.empty() && cuts_.contains(operation.outputs[0]);
      if (cut && is_read_by_a_loss(operation.outputs[0])) {
        waiting[operation.outputs[0]] = &operation;
      } else if (cut) {
        join(operation);
      } else if (!operation.inputs.empty() && waiting.contains(operation.inputs[0])) {
        join_loss(*waiting.at(operation.inputs[0]), operation);
      } else {
        out_.append(operation);
      }
    }
    return out_.status();
  }

 private:
  [[nodiscard]] bool is_read_by_a_loss(TensorId y) const {
    const auto found = readers_.find(y);
    return found != readers_.end() && found->second.size() == 1 &&
           found->second[0]->kind == kinds::kSoftmaxCrossEntropy && found->second[0]->inputs[0] == y;
  }

  TensorId slice(TensorId x, std::int64_t axis, const Piece& piece, const std::string& name) {
    return out_.add_one(kinds::kSlice, {x}, {{"axis", axis}, {"begin", piece.begin}, {"count", piece.count}}, name);
  }

  std::vector<Piece> pieces(const Operation& layer) {
    const TensorType& x = out_.type(layer.inputs[0]);
    return pieces_of(x.shape[static_cast<std::size_t>(positions_axis(x))], cuts_.at(layer.outputs[0]));
  }

  /// Returns a layer as a "linear" that reads views of its weights. All slices read the same views, so that a weight
  /// has one use and one gradient, the sum of those of the slices.
  Operation with_views(const Operation& operation) {
    Operation layer = *as_linear(graph_, operation);
    out_.set_origin(layer.origin);
    for (std::size_t i = 1; i < layer.inputs.size(); ++i) {
      const TensorId weight = layer.inputs[i];
      layer.inputs[i] =
          out_.add_one(kinds::kReshape, {weight}, {{"shape", out_.type(weight).shape}, {"layout", "row-major"}},
                       graph_.tensor(layer.outputs[0]).name + (i == 1 ? ".weight" : ".bias"));
      if (out_.status() && graph_.tensor(weight).keeps_f32) {
        graph_.keep_f32(layer.inputs[i]);
      }
    }
    return layer;
  }

  /// Adds slice `k` of a layer, and returns its output.
  TensorId add_slice(const Operation& layer, const Piece& piece, std::size_t k) {
    const std::string name = graph_.tensor(layer.outputs[0]).name;
    out_.set_origin(layer.origin);
    std::vector<TensorId> inputs = layer.inputs;
    inputs[0] = slice(inputs[0], positions_axis(out_.type(inputs[0])), piece, fmt::format("{}.input{}", name, k));
    return out_.add_one(layer.kind, std::move(inputs), layer.attributes, fmt::format("{}.slice{}", name, k));
  }

  void join(const Operation& operation) {
    const Operation layer = with_views(operation);
    std::vector<TensorId> slices;
    for (const Piece& piece : pieces(layer)) {
      slices.push_back(add_slice(layer, piece, slices.size()));
    }
    out_.update(kinds::kConcat, std::move(slices), {{"axis", positions_axis(out_.type(layer.outputs[0]))}},
                {layer.outputs[0]});
  }

  void join_loss(const Operation& operation, const Operation& loss) {
    const Operation layer = with_views(operation);
    const std::string name = graph_.tensor(loss.outputs[0]).name;
    std::vector<TensorId> results;
    std::size_t k = 0;
    for (const Piece& piece : pieces(layer)) {
      const TensorId logits = add_slice(layer, piece, k);
      out_.set_origin(loss.origin);
      const TensorId labels = slice(loss.inputs[1], positions_axis(out_.type(layer.outputs[0])), piece,
                                    fmt::format("{}.labels{}", name, k));
      for (const TensorId id : out_.add(loss.kind, {logits, labels}, loss.attributes,
                                        {fmt::format("{}.slice{}", name, k), fmt::format("{}.correct{}", name, k),
                                         fmt::format("{}.count{}", name, k)})) {
        results.push_back(id);
      }
      ++k;
    }
    out_.update(kinds::kJoinLosses, std::move(results), {}, loss.outputs);
  }

  Graph& graph_;
  const Cuts& cuts_;
  std::vector<Operation> operations_;
  std::map<TensorId, std::vector<const Operation*>> readers_;
  Builder out_;
};

/// Returns the layers to cut, by region. Errors: kUsage if a setting matches no layer, or has too many slices.
Result<std::map<std::size_t, Cuts>> cuts_of(const CompileOptions& options, const Job& job) {
  std::map<std::size_t, Cuts> cuts;  // Keyed by function, because a forward pass is the only one in its function.
  for (const SerialisationOptions::Layers& asked : options.serialisation.sequence) {
    POPRUN_ASSIGN(const std::vector<NamedLayer> layers, layers_named(kKey, asked, job));
    for (const NamedLayer& found : layers) {
      const TensorType& x = job.graph.tensor(found.layer.inputs[0]).type;
      const std::int64_t positions = x.shape.size() < 2 ? 1 : x.shape[static_cast<std::size_t>(positions_axis(x))];
      if (asked.slices > positions) {
        return fail(ErrorCode::kUsage,
                    fmt::format("{}: {}: '{}' has {}; use at most that many slices", kKey, asked.text, found.name,
                                counted(static_cast<std::uint64_t>(positions), "position")));
      }
      cuts[found.place.function][found.layer.outputs[0]] = asked.slices;
    }
  }
  for (auto& [function, layers] : cuts) {
    std::erase_if(layers, [](const auto& layer) { return layer.second <= 1; });
  }
  return cuts;
}

Status run(const CompileOptions& options, Job& job) {
  POPRUN_ASSIGN(const auto cuts, cuts_of(options, job));
  for (const Place place : forward_places(job)) {
    if (const auto found = cuts.find(place.function); found != cuts.end()) {
      POPRUN_TRY(Cutter(job.graph, place, found->second).run());
    }
  }
  return {};
}

/// Traces outputs of layers, and losses, back to the operands of the job before the pass.
class Verifier {
 public:
  Verifier(const Graph& before, const Graph& after, Place place)
      : before_(before), after_(after), place_(place), writers_(after, place), were_(before, place) {}

  Status run() const {
    for (const Operation& was : before_.at(place_).operations) {
      for (const TensorId id : was.outputs) {
        if (!is_equal(was, id)) {
          return pass_bug(kName, after_, id, "is neither what it was nor the join of its slices");
        }
      }
    }
    return {};
  }

 private:
  [[nodiscard]] const Operation* writer(TensorId id) const {
    const auto& all = writers_.of(id);
    return all.size() == 1 ? all[0] : nullptr;
  }

  [[nodiscard]] bool is_equal(const Operation& was, TensorId id) const {
    const auto& now = writers_.of(id);
    const auto same = [&was](const Operation* is) {
      return is->kind == was.kind && is->inputs == was.inputs && is->outputs == was.outputs &&
             is->attributes == was.attributes;
    };
    if (std::ranges::any_of(now, same)) {
      return true;
    }
    const std::optional<Operation> layer = as_linear(before_, was);
    if (now.empty()) {
      return layer.has_value() && is_unread(id);  // Only its loss, which is checked, has read it.
    }
    return layer ? is_layer(*layer, now[0]->kind == kinds::kConcat ? now[0]->inputs : std::vector<TensorId>{})
           : was.kind == kinds::kSoftmaxCrossEntropy ? is_loss(was, *now[0])
                                                     : false;
  }

  [[nodiscard]] bool is_unread(TensorId id) const {
    return std::ranges::none_of(after_.at(place_).operations, [id](const Operation& operation) {
      return std::ranges::find(operation.inputs, id) != operation.inputs.end();
    });
  }

  /// Returns the end of the slice of `whole` that a tensor is, if it begins at `begin`; otherwise nothing.
  [[nodiscard]] std::optional<std::int64_t> end_of(TensorId part, TensorId whole, std::int64_t axis,
                                                   std::int64_t begin) const {
    const Operation* slice = writer(part);
    if (slice == nullptr || slice->kind != kinds::kSlice || slice->inputs != std::vector{whole} ||
        slice->attributes.integer("axis") != axis || slice->attributes.integer("begin") != begin) {
      return std::nullopt;
    }
    return begin + slice->attributes.integer("count");
  }

  [[nodiscard]] bool is_view(TensorId view, TensorId of) const {
    const Operation* made = writer(view);
    return made != nullptr && made->kind == kinds::kReshape && made->inputs == std::vector{of} &&
           after_.tensor(view).type == after_.tensor(of).type;
  }

  [[nodiscard]] bool is_layer(const Operation& was, const std::vector<TensorId>& slices) const {
    const Shape& shape = before_.tensor(was.inputs[0]).type.shape;
    const auto axis = static_cast<std::int64_t>(shape.size()) - 2;
    std::optional<std::int64_t> end = 0;
    for (const TensorId id : slices) {
      const Operation* made = writer(id);
      if (made == nullptr || made->kind != was.kind || made->attributes != was.attributes ||
          !std::equal(was.inputs.begin() + 1, was.inputs.end(), made->inputs.begin() + 1, made->inputs.end(),
                      [this](TensorId weight, TensorId view) { return is_view(view, weight); })) {
        return false;
      }
      end = end_of(made->inputs[0], was.inputs[0], axis, *end);
      if (!end) {
        return false;
      }
    }
    return axis >= 0 && *end == shape[static_cast<std::size_t>(axis)];
  }

  [[nodiscard]] bool is_loss(const Operation& was, const Operation& join) const {
    const std::optional<Operation> layer = as_linear(before_, *were_.of(was.inputs[0]).at(0));
    if (join.kind != kinds::kJoinLosses || join.outputs != was.outputs || !layer) {
      return false;
    }
    const auto axis = static_cast<std::int64_t>(before_.tensor(was.inputs[0]).type.shape.size()) - 2;
    std::vector<TensorId> logits;
    std::optional<std::int64_t> end = 0;
    for (std::size_t k = 0; k + 2 < join.inputs.size(); k += 3) {
      const Operation* loss = writer(join.inputs[k]);
      if (loss == nullptr || loss->kind != was.kind || loss->attributes != was.attributes ||
          !std::equal(loss->outputs.begin(), loss->outputs.end(),
                      join.inputs.begin() + static_cast<std::ptrdiff_t>(k))) {
        return false;
      }
      const std::int64_t begin = *end;
      end = end_of(loss->inputs[1], was.inputs[1], axis, begin);
      const Operation* made = writer(loss->inputs[0]);
      if (!end || made == nullptr || end_of(made->inputs[0], layer->inputs[0], axis, begin) != end) {
        return false;
      }
      logits.push_back(loss->inputs[0]);
    }
    return is_layer(*layer, logits);
  }

  const Graph& before_;
  const Graph& after_;
  Place place_;
  Writers writers_;
  Writers were_;
};

/// Checks that each output is computed as before, or joined from consecutive slices without gaps.
Status verify(const CompileOptions& /*options*/, const Job& before, const Job& after) {
  for (const Place place : forward_places(before)) {
    POPRUN_TRY(Verifier(before.graph, after.graph, place).run());
  }
  return {};
}

}  // namespace

Pass pass() {
  return {kName, applies, run, verify};
}

}  // namespace poprun::passes::sequence_slices
