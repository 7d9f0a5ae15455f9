#include "replica/compiler/locations/locations.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "replica/compiler/pipeline/phase_use.h"
#include "replica/machine/machine.h"
#include "replica/machine/operations.h"

namespace poprun {
namespace {

/// Uses of a variable at most that many operations apart share one load.
constexpr std::size_t kKeepOperations = 8;

struct KindOfKept {
  const char* option;
  Storage LocationOptions::*storage;
};

KindOfKept kind_of(Kept kept) {
  switch (kept) {
    case Kept::kWeight:
      return {"memory.weights", &LocationOptions::weights};
    case Kept::kOptimizerState:
      return {"memory.optimizer-state", &LocationOptions::optimizer_state};
    case Kept::kAccumulator:
      return {"memory.accumulators", &LocationOptions::accumulators};
    case Kept::kActivation:
      break;
  }
  return {"memory.activations", &LocationOptions::activations};
}

/// "layer.12.weight" -> "layer.#.weight", and 12.
std::pair<std::string, std::vector<std::int64_t>> without_numbers(const std::string& name) {
  std::string plain;
  std::vector<std::int64_t> numbers;
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t end = std::min(name.find('.', at), name.size());
    const std::string part = name.substr(at, end - at);
    const bool is_number =
        !part.empty() && part.size() < 10 &&
        std::ranges::all_of(part, [](unsigned char c) { return std::isdigit(c); });
    plain += is_number ? "#" : part;
    if (is_number) {
      numbers.push_back(std::stoll(part));
    }
    plain += end < name.size() ? "." : "";
    at = end + 1;
  }
  return {plain, numbers};
}

/// Gives each variable an entry of a remote buffer.
void add_buffers(Graph& graph, const std::vector<TensorId>& variables) {
  using Key = std::tuple<std::uint32_t, Role, DataType, std::vector<std::int64_t>, std::string>;
  std::map<Key, std::vector<std::pair<std::vector<std::int64_t>, TensorId>>> alike;
  for (const TensorId id : variables) {
    const Tensor& tensor = graph.tensor(id);
    auto [name, numbers] = without_numbers(tensor.name);
    alike[{tensor.ipu, tensor.role, tensor.type.data, tensor.type.shape, name}].emplace_back(
        std::move(numbers), id);
  }
  for (auto& [key, members] : alike) {
    std::ranges::sort(members);
    const Tensor first = graph.tensor(members.front().second);
    Tensor buffer{first.name + ".remote", stash_type(first.type, std::ssize(members)), first.role,
                  first.keeps_f32, first.ipu};
    buffer.memory = Memory::kStreaming;
    const TensorId id = graph.add_tensor(std::move(buffer));
    for (std::size_t entry = 0; entry < members.size(); ++entry) {
      graph.set_residence(members[entry].second, {id, static_cast<std::int64_t>(entry)});
    }
  }
}

bool names(const std::vector<TensorId>& tensors, TensorId id) {
  return std::ranges::find(tensors, id) != tensors.end();
}

bool reduces(const Operation& operation) {
  const std::optional<AllReduce> all = AllReduce::from(operation);
  return (all && !all->in_background) || ReduceScatter::is(operation);
}

/// Gives each off-chip accumulator a reduction of its own, right before what names it first, or the
/// shard of it.
class SplitReductions {
 public:
  SplitReductions(Region& region, const std::set<TensorId>& off_chip)
      : region_(region), off_chip_(off_chip) {}

  void run() {
    for (Operation& operation : region_.operations) {
      release(operation.inputs);
      release(operation.outputs);
      if (reduces(operation)) {
        split(operation);
      } else {
        operations_.push_back(std::move(operation));
      }
    }
    for (auto& [tensor, reduction] : waiting_) {
      operations_.push_back(std::move(reduction));
    }
    region_.operations = std::move(operations_);
  }

 private:
  void release(const std::vector<TensorId>& tensors) {
    for (const TensorId id : tensors) {
      const auto reduced = reduced_as_.find(id);
      const auto found = waiting_.find(reduced == reduced_as_.end() ? id : reduced->second);
      if (found != waiting_.end()) {
        operations_.push_back(std::move(found->second));
        waiting_.erase(found);
      }
    }
  }

  void split(const Operation& operation) {
    Operation rest{operation.kind, {}, {}, operation.attributes, operation.origin};
    for (std::size_t k = 0; k < operation.inputs.size(); ++k) {
      const TensorId tensor = operation.inputs[k];
      const TensorId result = operation.outputs[k];
      const bool is_own = off_chip_.contains(tensor);
      Operation& part =
          is_own
              ? waiting_
                    .try_emplace(
                        tensor,
                        Operation{operation.kind, {}, {}, operation.attributes, operation.origin})
                    .first->second
              : rest;
      part.inputs.push_back(tensor);
      part.outputs.push_back(result);
      if (is_own) {
        reduced_as_[result] = tensor;
      }
    }
    if (!rest.inputs.empty()) {
      operations_.push_back(std::move(rest));
    }
  }

  Region& region_;
  const std::set<TensorId>& off_chip_;
  std::vector<Operation> operations_;
  std::map<TensorId, Operation> waiting_;    ///< By what is reduced.
  std::map<TensorId, TensorId> reduced_as_;  ///< By result: what is reduced.
};

/// Copies between variables and their remote buffers, one for each IPU.
std::vector<Operation> copies_of(const Graph& graph, const auto& variables, bool load) {
  std::map<std::uint32_t, Copy> by_ipu;
  for (const TensorId id : variables) {
    const Residence& where = *graph.tensor(id).residence;
    Copy& copy = by_ipu[graph.tensor(id).ipu];
    copy.from_tensors.push_back(load ? where.tensor : id);
    copy.to_tensors.push_back(load ? id : where.tensor);
    (load ? copy.from_entries : copy.to_entries).push_back(where.entry);
  }
  std::vector<Operation> copies;
  for (const auto& [ipu, copy] : by_ipu) {
    copies.push_back(copy.operation());
  }
  return copies;
}

/// One stay of a variable on the chip.
struct Stay {
  std::size_t first = 0;  ///< Operations that use it.
  std::size_t last = 0;
  bool loads = false;                       ///< The first of them reads it.
  std::optional<std::size_t> written = {};  ///< The last of them to write it.
};

/// Puts loads and stores into a region.
class RegionLoads {
 public:
  RegionLoads(const Graph& graph, Region& region, const std::set<TensorId>& off_chip)
      : graph_(graph), region_(region), off_chip_(off_chip) {}

  /// `dead`: variables that nothing reads after this region.
  void run(const std::set<TensorId>& dead) {
    std::map<std::size_t, std::vector<TensorId>> loads;
    std::map<std::size_t, std::vector<TensorId>> stores;
    for (auto& [id, stays] : find_stays()) {
      for (std::size_t s = 0; s < stays.size(); ++s) {
        if (stays[s].loads) {
          loads[stays[s].first].push_back(id);
        }
        if (stays[s].written && !(s + 1 == stays.size() && dead.contains(id))) {
          stores[*stays[s].written].push_back(id);
        }
      }
    }
    std::vector<Operation> operations;
    for (std::size_t i = 0; i < region_.operations.size(); ++i) {
      const Origin origin = region_.operations[i].origin;
      copy(loads[i], true, origin, operations);
      operations.push_back(std::move(region_.operations[i]));
      copy(stores[i], false, origin, operations);
    }
    region_.operations = std::move(operations);
  }

 private:
  /// A call may use a variable too, so none stays on the chip beyond it.
  std::map<TensorId, std::vector<Stay>> find_stays() {
    std::map<TensorId, std::vector<Stay>> all;
    std::size_t last_call = 0;
    for (std::size_t i = 0; i < region_.operations.size(); ++i) {
      const Operation& operation = region_.operations[i];
      if (Call::from(operation)) {
        last_call = i;
      }
      std::set<TensorId> used;
      for (const auto* tensors : {&operation.inputs, &operation.outputs}) {
        std::ranges::copy_if(*tensors, std::inserter(used, used.end()),
                             [this](TensorId id) { return off_chip_.contains(id); });
      }
      for (const TensorId id : used) {
        std::vector<Stay>& stays = all[id];
        if (stays.empty() || i - stays.back().last > kKeepOperations ||
            stays.back().last < last_call) {
          stays.push_back({i, i, names(operation.inputs, id)});
        }
        stays.back().last = i;
        if (names(operation.outputs, id)) {
          stays.back().written = i;
        }
      }
    }
    return all;
  }

  void copy(const std::vector<TensorId>& variables, bool load, const Origin& origin,
            std::vector<Operation>& operations) const {
    for (Operation& copy : copies_of(graph_, variables, load)) {
      copy.origin = origin;
      operations.push_back(std::move(copy));
    }
  }

  const Graph& graph_;
  Region& region_;
  const std::set<TensorId>& off_chip_;
};

/// The operations that name a tensor before a phase of their function.
std::int64_t count_before(const Graph& graph, Place phase, TensorId id) {
  const std::vector<Region>& regions = graph.functions[phase.function].regions;
  std::int64_t count = 0;
  for (std::size_t r = 0; r < phase.region; ++r) {
    count += std::ranges::count_if(regions[r].operations, [id](const Operation& operation) {
      return names(operation.inputs, id) || names(operation.outputs, id);
    });
  }
  return count;
}

/// The phase before which a variable may be set up by `operation`, the first one to use it.
/// Nothing: others set it up, or it takes more than making a constant.
std::optional<std::size_t> set_up_before(const Graph& graph, const Operation& operation,
                                         const std::vector<Place>& phases,
                                         const std::vector<PhaseUse>& uses) {
  if (!operation.inputs.empty() || operation.outputs.size() != 1 ||
      find_machine_operation(operation.kind) != nullptr) {
    return std::nullopt;
  }
  const TensorId id = operation.outputs[0];
  const auto first = std::ranges::find_if(uses, [id](const PhaseUse& use) {
    return use.reads.contains(id) || use.writes.contains(id);
  });
  if (first == uses.end() || !first->reads.contains(id)) {
    return std::nullopt;
  }
  const auto phase = static_cast<std::size_t>(first - uses.begin());
  return count_before(graph, phases[phase], id) == 1 ? std::optional(phase) : std::nullopt;
}

/// Takes out of the beginning of a step what sets up off-chip variables of phases from nothing, the
/// zeros of accumulators: the phase that uses one first makes it instead of loading it. Returns
/// them by phase.
std::map<std::size_t, std::vector<Operation>> take_set_ups(Graph& graph,
                                                           const std::set<TensorId>& variables,
                                                           const std::vector<Place>& phases,
                                                           std::vector<PhaseUse>& uses) {
  std::map<std::size_t, std::vector<Operation>> taken;
  if (phases.empty()) {
    return taken;
  }
  Region& begin = graph.at(beside(phases[0], -1));
  std::vector<Operation> rest;
  for (Operation& operation : begin.operations) {
    const bool is_off_chip =
        operation.outputs.size() == 1 && variables.contains(operation.outputs[0]);
    const auto phase = is_off_chip ? set_up_before(graph, operation, phases, uses) : std::nullopt;
    if (phase) {
      uses[*phase].reads.erase(operation.outputs[0]);
    }
    (phase ? taken[*phase] : rest).push_back(operation);
  }
  begin.operations = std::move(rest);
  return taken;
}

/// Loads before phases, with what sets up other variables of theirs, and stores after them.
void load_for_phases(Graph& graph, const std::vector<Place>& phases,
                     const std::vector<PhaseUse>& uses,
                     std::map<std::size_t, std::vector<Operation>> set_ups) {
  const auto append = [](std::vector<Operation> more, Region& to) {
    to.operations.insert(to.operations.end(), more.begin(), more.end());
  };
  for (std::size_t p = 0; p < phases.size(); ++p) {
    const bool ahead = p > 0 && uses[p - 1].ipu != uses[p].ipu;
    Region& before = graph.at(beside(phases[ahead ? p - 1 : p], -1));
    append(copies_of(graph, uses[p].reads, true), before);
    append(std::move(set_ups[p]), before);
  }
  for (std::size_t p = 0; p < phases.size(); ++p) {
    // Before anything else, so that what is loaded there is there already.
    const bool is_last = p + 1 == phases.size();
    Region& behind = graph.at(is_last ? beside(phases[p], 1) : beside(phases[p + 1], -1));
    const std::vector<Operation> stores = copies_of(graph, uses[p].writes, false);
    behind.operations.insert(behind.operations.begin(), stores.begin(), stores.end());
  }
}

}  // namespace

Result<std::vector<Location>> decide_locations(const Graph& graph, const LocationOptions& options) {
  std::vector<std::pair<std::regex, const LocationOptions::Override*>> overrides;
  for (const LocationOptions::Override& one : options.overrides) {
    try {
      overrides.emplace_back(std::regex(one.tensors), &one);
    } catch (const std::regex_error&) {
      return fail(ErrorCode::kUsage,
                  fmt::format("memory.location: '{}' is no regular expression", one.tensors));
    }
  }
  std::vector<Location> locations;
  for (const auto& [id, kept] : kept_tensors(graph)) {
    const Tensor& tensor = graph.tensor(id);
    const KindOfKept kind = kind_of(kept);
    Location location{id, kept, options.*kind.storage == Storage::kOffChip, kind.option};
    if (location.off_chip && tensor.type.elements() < options.off_chip_elements_min) {
      location.off_chip = false;
      location.why = fmt::format("fewer than {} elements (memory.off-chip-min-elements)",
                                 options.off_chip_elements_min);
    }
    for (const auto& [expression, one] : overrides) {
      if (std::regex_search(tensor.name, expression)) {
        location.off_chip = one->storage == Storage::kOffChip;
        location.why = fmt::format("memory.location {}", one->tensors);
      }
    }
    locations.push_back(std::move(location));
  }
  return locations;
}

void keep_off_chip(Graph& graph, const std::vector<Location>& locations,
                   const std::optional<Place>& update, const std::vector<Place>& phases) {
  std::set<TensorId> variables;
  std::set<TensorId> accumulators;
  for (const Location& location : locations) {
    if (!location.off_chip) {
      continue;
    }
    if (location.kept == Kept::kActivation) {
      graph.set_memory(location.tensor, Memory::kStreaming);
      continue;
    }
    variables.insert(location.tensor);
    if (location.kept == Kept::kAccumulator) {
      accumulators.insert(location.tensor);
    }
  }
  add_buffers(graph, {variables.begin(), variables.end()});
  std::vector<PhaseUse> uses;
  std::set<std::string> of_phases;
  for (const Place phase : phases) {
    uses.push_back(use_in_phase(graph, graph.at(phase), variables));
    of_phases.insert(uses.back().functions.begin(), uses.back().functions.end());
  }
  std::map<std::size_t, std::vector<Operation>> set_ups =
      take_set_ups(graph, variables, phases, uses);
  for (std::size_t f = 0; f < graph.functions.size(); ++f) {
    if (of_phases.contains(graph.functions[f].name)) {
      continue;
    }
    for (std::size_t r = 0; r < graph.functions[f].regions.size(); ++r) {
      Region& region = graph.functions[f].regions[r];
      const bool is_last = update && update->function == f && update->region == r;
      SplitReductions(region, accumulators).run();
      RegionLoads(graph, region, variables).run(is_last ? accumulators : std::set<TensorId>{});
    }
  }
  load_for_phases(graph, phases, uses, std::move(set_ups));
}

}  // namespace poprun
