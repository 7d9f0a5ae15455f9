#include "replica/compiler/tiles/moves.h"

#include <algorithm>

#include "replica/compiler/tiles/product_layout.h"
#include "replica/machine/machine.h"
#include "replica/machine/operations.h"

namespace poprun {
namespace {

bool is_entry(const Operation& operation) {
  return Stash::is(operation) || Restore::is(operation);
}

Mapping entry_of(Mapping stash) {
  stash.axes.erase(stash.axes.begin());
  return stash;
}

}  // namespace

bool is_within_ipu(const Graph& graph, const Operation& operation) {
  const std::uint32_t ipu = graph.tensor(operation.outputs[0]).ipu;
  const auto is_there = [&](TensorId tensor) {
    return graph.tensor(tensor).ipu == ipu && !graph.tensor(tensor).is_remote();
  };
  return std::ranges::all_of(operation.inputs, is_there) && std::ranges::all_of(operation.outputs, is_there);
}

std::vector<std::int64_t> Received::row() const {
  std::vector<std::int64_t> bytes = counts->by_tile;
  for (std::int64_t& count : bytes) {
    count *= width;
  }
  return bytes;
}

std::size_t Moves::Hash::operator()(const Mapping& mapping) const {
  std::size_t hash = 0;
  const auto add = [&hash](std::int64_t value) {
    // This is the multiplier of Knuth's MMIX generator.
    hash = (hash ^ static_cast<std::size_t>(value)) * 6364136223846793005ULL + (hash >> 32U);
  };
  for (const GridAxis& axis : mapping.axes) {
    add(axis.extent);
    add(axis.part);
    add(axis.stride);
  }
  for (const Share& share : mapping.shares) {
    add(share.tiles);
    add(share.stride);
  }
  add(mapping.grain);
  add(mapping.first);
  return hash;
}

const TileCounts& Moves::counts(const Mapping& mapping) {
  const auto [known, is_new] = counts_.try_emplace(mapping);
  if (is_new) {
    known->second.by_tile = elements_by_tile(mapping, device_.tiles);
    known->second.most = std::ranges::max(known->second.by_tile);
  }
  return known->second;
}

const TileCounts& Moves::even(Bytes bytes) {
  if (bytes == Bytes{0}) {
    nothing_.by_tile.assign(static_cast<std::size_t>(device_.tiles), 0);
    return nothing_;
  }
  return counts(linear_mapping(bytes.count(), 8, device_.tiles));
}

bool Moves::lies_like(TensorId tensor, TensorId home) const {
  return mappings_[index_of(tensor)] == mappings_[index_of(home)];
}

TensorId Moves::home(const Operation& operation) const {
  if (Stash::is(operation)) {
    return operation.inputs[0];
  }
  std::vector<TensorId> tensors = operation.outputs;
  if (!is_entry(operation) && !Copy::is(operation)) {
    tensors.insert(tensors.end(), operation.inputs.begin(), operation.inputs.end());
  }
  return *std::ranges::max_element(tensors, {},
                                   [this](TensorId tensor) { return graph_.tensor(tensor).type.elements(); });
}

std::vector<Received> Moves::received(const Operation& operation) {
  const auto width = [this](TensorId tensor) { return size_of(graph_.tensor(tensor).type.data).count(); };
  std::vector<Received> all;
  if ((is_entry(operation) || Copy::is(operation)) && !is_within_ipu(graph_, operation)) {
    return all;
  }
  if (is_entry(operation)) {
    const TensorId from = operation.inputs[0];
    const TensorId to = operation.outputs[0];
    const TensorId entry = Stash::is(operation) ? from : to;
    const Mapping in_stash = entry_of(mappings_[index_of(entry == from ? to : from)]);
    if (in_stash != mappings_[index_of(entry)]) {
      all.push_back({{}, entry == from ? &counts(in_stash) : &counts(to), width(to)});
    }
    return all;
  }
  if (Copy::is(operation)) {
    for (std::size_t k = 0; k < operation.inputs.size(); ++k) {
      const TensorId to = operation.outputs[k];
      if (!lies_like(operation.inputs[k], to)) {
        all.push_back({{}, &counts(to), width(to)});
      }
    }
    return all;
  }
  if (operation.outputs.empty() || find_machine_operation(operation.kind) != nullptr) {
    return all;
  }
  const TensorId home = this->home(operation);
  for (std::size_t k = 0; k < operation.inputs.size(); ++k) {
    const TensorId input = operation.inputs[k];
    const TensorType& type = graph_.tensor(input).type;
    if (lies_like(input, home)) {
      continue;
    }
    if (type.elements() == graph_.tensor(home).type.elements()) {
      all.push_back({k, &counts(home), width(input)});
    } else {
      all.push_back({k, &even(type.bytes())});
    }
  }
  for (const TensorId output : operation.outputs) {
    if (!lies_like(output, home)) {
      all.push_back({{}, &counts(output), width(output)});
    }
  }
  return all;
}

std::vector<Received> Moves::regrouped(const Operation& operation, const PlannedProduct& planned) {
  const planner::Plan& plan = *planned.plan;
  const planner::View& view = plan.viewed.view;
  const ProductLayout layout = layout_of(plan, planned.axes);
  // The plan itself rearranges operands that the view copies, and weights that it uses step by step.
  const bool copies_input = plan.viewed.copied_input > 0;
  const bool copies_weights = plan.viewed.copied_weights > 0 || plan.splits.serial() > 1;
  std::vector<Received> all;
  const auto regroup = [&](std::size_t operand, const Mapping& wanted, bool is_copied) {
    const TensorId tensor = operation.inputs[operand];
    if (!is_copied && mappings_[index_of(tensor)] != wanted) {
      all.push_back({operand, &even(graph_.tensor(tensor).type.bytes())});
    }
  };
  regroup(0, layout.input, view.swapped ? copies_weights : copies_input);
  regroup(1, layout.weights, view.swapped ? copies_input : copies_weights);
  return all;
}

}  // namespace poprun
