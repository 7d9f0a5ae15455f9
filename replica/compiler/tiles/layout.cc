#include "replica/compiler/tiles/layout.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "replica/compiler/tiles/product_layout.h"
#include "replica/machine/operations.h"

namespace poprun {
namespace {

class Layouts {
 public:
  Layouts(const Graph& graph, const ProductPlans& plans, const Aliases& aliases, const Device& device)
      : graph_(graph), plans_(plans), device_(device), mappings_(graph.tensors().size()) {
    for (std::uint32_t t = 0; t < aliases.size(); ++t) {
      if (aliases[t]) {
        const std::int64_t width = size_of(graph.tensors()[t].type.data).count();
        same_bytes_[{aliases[t]->block, aliases[t]->offset, graph.tensors()[t].type.bytes(), width}].push_back(
            TensorId{t});
      }
    }
  }

  std::vector<Mapping> run() {
    for_each_step(graph_, [this](const Operation& operation, std::uint32_t step) {
      if (step < plans_.size() && plans_[step]) {
        follow_plan(operation, *plans_[step]);
      }
    });
    spread_to_neighbours();
    parameters_in_rows();
    spread_to_neighbours();
    std::vector<Mapping> all;
    for (std::size_t t = 0; t < mappings_.size(); ++t) {
      all.push_back(mappings_[t] ? *mappings_[t] : in_a_row(graph_.tensors()[t].type));
    }
    return all;
  }

 private:
  void follow_plan(const Operation& operation, const PlannedProduct& planned) {
    const ProductLayout layout = layout_of(*planned.plan, planned.axes);
    set(operation.outputs[0], layout.output);
    for (const std::size_t operand : {0U, 1U}) {
      const TensorId tensor = operation.inputs[operand];
      const Role role = graph_.tensor(graph_.tensor(tensor).copy_of.value_or(tensor)).role;
      if (role == Role::kParameter || role == Role::kConstant || role == Role::kStream) {
        set(tensor, operand == 0 ? layout.input : layout.weights);
      }
    }
  }

  void spread_to_neighbours() {
    for (bool moved = true; moved;) {
      moved = false;
      for (const auto& [bytes, tensors] : same_bytes_) {
        moved = all_alike(tensors) || moved;
      }
      for_each_step(graph_,
                    [&](const Operation& operation, std::uint32_t /*step*/) { moved = follow(operation) || moved; });
    }
  }

  /// Maps each parameter linearly, from the tile after the last tile of the previous one.
  void parameters_in_rows() {
    std::map<std::uint32_t, std::int64_t> next;  // The tile to begin on, for each IPU.
    for (std::uint32_t t = 0; t < mappings_.size(); ++t) {
      const Tensor& tensor = graph_.tensors()[t];
      if (mappings_[t] || tensor.role != Role::kParameter) {
        continue;
      }
      mappings_[t] = in_a_row(tensor.type);
      mappings_[t]->first = next[tensor.ipu] % device_.tiles;
      next[tensor.ipu] += mappings_[t]->shares[0].tiles;
    }
  }

  /// Maps a tensor, unless it is mapped already or has elements that the plan does not cover.
  void set(TensorId tensor, const Mapping& mapping) {
    if (!of(tensor) && mapping.elements() == graph_.tensor(tensor).type.elements()) {
      of(tensor) = mapping;
    }
  }

  [[nodiscard]] Mapping in_a_row(const TensorType& type) const {
    const std::int64_t width = size_of(type.data).count();
    const std::int64_t tiles = ceil_div(type.bytes().count(), kLinearBytesMin.count());
    return linear_mapping(type.elements(), std::max<std::int64_t>(1, 8 / width),
                          std::clamp<std::int64_t>(tiles, 1, device_.tiles));
  }

  /// Maps the unmapped tensors of an operation like the mapped ones that match them. Returns whether it mapped any.
  bool follow(const Operation& operation) {
    if (Stash::is(operation) || Restore::is(operation)) {
      return follow_stash(operation);
    }
    if (Copy::is(operation)) {
      bool moved = false;
      for (std::size_t k = 0; k < operation.inputs.size(); ++k) {
        moved = (lies_alike(operation.inputs[k], operation.outputs[k]) &&
                 alike(operation.inputs[k], operation.outputs[k])) ||
                moved;
      }
      return moved;
    }
    bool moved = false;
    for (const TensorId output : operation.outputs) {
      for (const TensorId input : operation.inputs) {
        moved = (lies_alike(input, output) && alike(input, output)) || moved;
      }
    }
    return moved;
  }

  /// Maps a stash as a sequence of entries that are mapped like `entry`, or `entry` like an entry of the stash.
  bool follow_stash(const Operation& operation) {
    const bool stores = Stash::is(operation);
    const TensorId stash = stores ? operation.outputs[0] : operation.inputs[0];
    const TensorId entry = stores ? operation.inputs[0] : operation.outputs[0];
    if (!of(stash) && of(entry)) {
      Mapping mapping = *of(entry);
      const std::int64_t length = graph_.tensor(stash).type.shape[0];
      mapping.axes.insert(mapping.axes.begin(), {length, length, 0});
      of(stash) = mapping;
      return true;
    }
    if (of(stash) && !of(entry)) {
      Mapping mapping = *of(stash);
      mapping.axes.erase(mapping.axes.begin());
      of(entry) = mapping;
      return true;
    }
    return false;
  }

  /// Returns whether element i of one tensor corresponds to element i of the other.
  [[nodiscard]] bool lies_alike(TensorId a, TensorId b) const {
    const TensorType& x = graph_.tensor(a).type;
    const TensorType& y = graph_.tensor(b).type;
    return x.shape == y.shape && x.layout == y.layout;
  }

  /// Maps the unmapped tensors like the first mapped one.
  bool all_alike(const std::vector<TensorId>& tensors) {
    const auto mapped = std::ranges::find_if(tensors, [this](TensorId t) { return of(t).has_value(); });
    bool moved = false;
    for (const TensorId tensor : tensors) {
      moved = (mapped != tensors.end() && alike(tensor, *mapped)) || moved;
    }
    return moved;
  }

  bool alike(TensorId a, TensorId b) {
    if (of(a).has_value() == of(b).has_value()) {
      return false;
    }
    (of(a) ? of(b) : of(a)) = of(a) ? of(a) : of(b);
    return true;
  }

  std::optional<Mapping>& of(TensorId tensor) { return mappings_[index_of(tensor)]; }

  const Graph& graph_;
  const ProductPlans& plans_;
  const Device& device_;
  std::vector<std::optional<Mapping>> mappings_;
  /// Tensors, keyed by block, offset, size, and element width. Tensors with the same key have the same mapping.
  std::map<std::tuple<std::uint32_t, Bytes, Bytes, std::int64_t>, std::vector<TensorId>> same_bytes_;
};

}  // namespace

std::vector<Mapping> lay_out(const Graph& graph, const ProductPlans& plans, const Aliases& aliases,
                             const Device& device) {
  return Layouts(graph, plans, aliases, device).run();
}

}  // namespace poprun
