#include "replica/compiler/techniques/residence/locations.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "replica/base/pattern.h"
#include "replica/compiler/techniques/pipeline/phases.h"
#include "replica/compiler/techniques/residence/split_reductions.h"
#include "replica/machine/machine.h"
#include "replica/machine/operations.h"
#include "replica/ops/face/kinds.h"

namespace poprun {
namespace {

/// Uses of a variable that are at most this many operations apart share one load.
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

/// Separates the numbers from a name: "layer.12.weight" becomes "layer.#.weight" and 12.
std::pair<std::string, std::vector<std::int64_t>> without_numbers(const std::string& name) {
  std::string plain;
  std::vector<std::int64_t> numbers;
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t end = std::min(name.find('.', at), name.size());
    const std::string part = name.substr(at, end - at);
    const bool is_number =
        !part.empty() && part.size() < 10 && std::ranges::all_of(part, [](unsigned char c) { return std::isdigit(c); });
    plain += is_number ? "#" : part;
    if (is_number) {
      numbers.push_back(std::stoll(part));
    }
    plain += end < name.size() ? "." : "";
    at = end + 1;
  }
  return {plain, numbers};
}

void add_buffers(Graph& graph, const std::vector<TensorId>& variables) {
  using Key = std::tuple<std::uint32_t, Role, DataType, std::vector<std::int64_t>, std::string>;
  std::map<Key, std::vector<std::pair<std::vector<std::int64_t>, TensorId>>> alike;
  for (const TensorId id : variables) {
    const Tensor& tensor = graph.tensor(id);
    auto [name, numbers] = without_numbers(tensor.name);
    alike[{tensor.ipu, tensor.role, tensor.type.data, tensor.type.shape, name}].emplace_back(std::move(numbers), id);
  }
  for (auto& [key, members] : alike) {
    std::ranges::sort(members);
    const Tensor first = graph.tensor(members.front().second);
    Tensor buffer{first.name + ".remote", stash_type(first.type, std::ssize(members)), first.role, first.keeps_f32,
                  first.ipu};
    buffer.memory = Memory::kStreaming;
    const TensorId id = graph.add_tensor(std::move(buffer));
    for (std::size_t entry = 0; entry < members.size(); ++entry) {
      graph.set_residence(members[entry].second, {id, static_cast<std::int64_t>(entry)});
    }
  }
}

/// Returns the copies between variables and their remote buffers, one per IPU.
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

/// Variables that the preceding phase leaves on the chip for a region, and those that the region leaves for the next
/// phase.
struct Around {
  std::set<TensorId> present;
  std::set<TensorId> kept;
};

/// One stay of a variable on the chip.
struct Stay {
  std::size_t first = 0;  ///< The operations that use it first and last.
  std::size_t last = 0;
  bool loads = false;                       ///< The first use reads it.
  std::optional<std::size_t> written = {};  ///< The last operation that writes it.
};

class RegionLoads {
 public:
  RegionLoads(const Graph& graph, Region& region, const std::set<TensorId>& off_chip)
      : graph_(graph), region_(region), off_chip_(off_chip) {}

  /// Adds loads and stores. `dead`: variables not read after the region. Returns variables written in their first stay.
  std::set<TensorId> run(const std::set<TensorId>& dead, const Around& around) {
    std::map<std::size_t, std::vector<TensorId>> loads;
    std::map<std::size_t, std::vector<TensorId>> stores;
    std::set<TensorId> written;
    for (auto& [id, stays] : find_stays(around.present)) {
      if (stays[0].written) {
        written.insert(id);
      }
      for (std::size_t s = 0; s < stays.size(); ++s) {
        if (stays[s].loads) {
          loads[stays[s].first].push_back(id);
        }
        const bool is_last = s + 1 == stays.size();
        if (stays[s].written && !(is_last && (dead.contains(id) || around.kept.contains(id)))) {
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
    return written;
  }

 private:
  /// Finds each variable's stays. No stay extends past a call, because the called function may use the variable, too.
  std::map<TensorId, std::vector<Stay>> find_stays(const std::set<TensorId>& present) {
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
        if (stays.empty() || i - stays.back().last > kKeepOperations || stays.back().last < last_call) {
          const bool is_there = stays.empty() && present.contains(id);
          stays.push_back({i, i, !is_there && names(operation.inputs, id)});
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

/// Loads and stores of a job with phases.
class PhaseLoads {
 public:
  PhaseLoads(Graph& graph, const std::vector<Place>& phases, const std::set<TensorId>& off_chip)
      : graph_(graph), phases_(phases) {
    for (std::size_t p = 0; p < phases.size(); ++p) {
      const PhaseUse& use = uses_.emplace_back(use_in_phase(graph, graph.at(phases[p]), off_chip));
      functions_.insert(use.functions.begin(), use.functions.end());
    }
    for (std::size_t p = 0; p < phases.size(); ++p) {
      const Place place = beside(phases[p], -1);
      for (const TensorId id : uses_[p].reads) {
        if (uses_[p].writes.contains(id) && is_written(place, id)) {
          around_[place.region].kept.insert(id);
        }
      }
      Around& after = around_[behind(phases_, p).region];
      after.present = uses_[p].reads;
      after.present.insert(uses_[p].writes.begin(), uses_[p].writes.end());
    }
  }

  /// Returns whether a phase calls a function. The function then finds its variables loaded.
  [[nodiscard]] bool calls(const std::string& function) const { return functions_.contains(function); }

  [[nodiscard]] Around around(Place place) const {
    const auto found = around_.find(place.region);
    return found == around_.end() || !is_around(place) ? Around{} : found->second;
  }

  /// Records variables that a region writes during their first stay, so that the preceding phase does not store them.
  void note_written(Place place, std::set<TensorId> variables) {
    if (is_around(place)) {
      written_[place.region] = std::move(variables);
    }
  }

  void run() {
    for (std::size_t p = 0; p < phases_.size(); ++p) {
      const bool ahead = p > 0 && uses_[p - 1].ipu != uses_[p].ipu;
      std::set<TensorId> loads = uses_[p].reads;
      for (const TensorId id : around_[phases_[p].region - 1].kept) {
        loads.erase(id);
      }
      std::vector<Operation>& before = graph_.at(beside(phases_[ahead ? p - 1 : p], -1)).operations;
      const std::vector<Operation> copies = copies_of(graph_, loads, true);
      before.insert(before.end(), copies.begin(), copies.end());
    }
    for (std::size_t p = 0; p < phases_.size(); ++p) {
      std::set<TensorId> stores = uses_[p].writes;
      for (const TensorId id : written_[behind(phases_, p).region]) {
        stores.erase(id);
      }
      // Stores come first, so that loads in the same region read the stored values.
      std::vector<Operation>& operations = graph_.at(behind(phases_, p)).operations;
      const std::vector<Operation> copies = copies_of(graph_, stores, false);
      operations.insert(operations.begin(), copies.begin(), copies.end());
    }
  }

 private:
  [[nodiscard]] bool is_written(Place place, TensorId id) const {
    return std::ranges::any_of(graph_.at(place).operations,
                               [id](const Operation& operation) { return names(operation.outputs, id); });
  }

  [[nodiscard]] bool is_around(Place place) const { return !phases_.empty() && place.function == phases_[0].function; }

  Graph& graph_;
  const std::vector<Place>& phases_;
  std::vector<PhaseUse> uses_;
  std::set<std::string> functions_;
  std::map<std::size_t, Around> around_;               ///< Keyed by region.
  std::map<std::size_t, std::set<TensorId>> written_;  ///< Keyed by region.
};

}  // namespace

std::map<TensorId, Kept> kept_tensors(const Graph& graph) {
  std::map<TensorId, Kept> kept;
  for (const Function& function : graph.functions) {
    for (const Region& region : function.regions) {
      for (const Operation& operation : region.operations) {
        if (operation.kind == kinds::kAccumulate) {
          kept[operation.outputs[0]] = Kept::kAccumulator;
        } else if (Stash::is(operation)) {
          kept[operation.outputs[0]] = Kept::kActivation;
        }
      }
    }
  }
  for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
    const Role role = graph.tensors()[t].role;
    if (role == Role::kParameter) {
      kept[TensorId{t}] = Kept::kWeight;
    } else if (role == Role::kOptimizerState) {
      kept[TensorId{t}] = Kept::kOptimizerState;
    }
  }
  std::erase_if(kept, [&graph](const auto& one) {
    return graph.tensor(one.first).residence || graph.tensor(one.first).is_remote();
  });
  return kept;
}

Result<std::vector<Location>> decide_locations(const Graph& graph, const LocationOptions& options,
                                               const std::vector<Place>& phases) {
  std::vector<std::pair<Pattern, const LocationOptions::Override*>> overrides;
  for (const LocationOptions::Override& one : options.overrides) {
    const Result<Pattern> pattern = Pattern::parse(one.tensors);
    if (!pattern) {
      return fail(ErrorCode::kUsage, fmt::format("memory.location: '{}' is not a valid regular expression: {}",
                                                 one.tensors, pattern.error().message));
    }
    overrides.emplace_back(*pattern, &one);
  }
  std::vector<Location> locations;
  const std::set<TensorId> of_one_phase = used_in_one_phase(graph, phases);
  for (const auto& [id, kept] : kept_tensors(graph)) {
    const Tensor& tensor = graph.tensor(id);
    const KindOfKept kind = kind_of(kept);
    Location location{id, kept, options.*kind.storage == Storage::kOffChip, kind.option};
    if (location.off_chip && tensor.type.elements() < options.off_chip_elements_min) {
      location.off_chip = false;
      location.why =
          fmt::format("fewer than {} elements (memory.off-chip-min-elements)", options.off_chip_elements_min);
    }
    for (const auto& [pattern, one] : overrides) {
      if (pattern.finds(tensor.name)) {
        location.off_chip = one->storage == Storage::kOffChip;
        location.why = fmt::format("memory.location {}", one->tensors);
      }
    }
    if (location.off_chip && kept == Kept::kAccumulator && of_one_phase.contains(id)) {
      location.off_chip = false;
      location.why = "memory.phases: only one phase produces and uses the accumulator";
    }
    locations.push_back(std::move(location));
  }
  return locations;
}

void keep_off_chip(Graph& graph, const std::vector<Location>& locations, const std::optional<Place>& update,
                   const std::vector<Place>& phases) {
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
  PhaseLoads of_phases(graph, phases, variables);
  for (std::size_t f = 0; f < graph.functions.size(); ++f) {
    if (of_phases.calls(graph.functions[f].name)) {
      continue;
    }
    for (std::size_t r = 0; r < graph.functions[f].regions.size(); ++r) {
      const Place place{f, r};
      const bool is_last = update && update->function == f && update->region == r;
      split_reductions(graph.at(place), accumulators);
      of_phases.note_written(place, RegionLoads(graph, graph.at(place), variables)
                                        .run(is_last ? accumulators : std::set<TensorId>{}, of_phases.around(place)));
    }
  }
  of_phases.run();
}

}  // namespace poprun
