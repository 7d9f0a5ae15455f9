#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "replica/base/pattern.h"
#include "replica/base/text.h"
#include "replica/compiler/job/pass.h"
#include "replica/compiler/techniques/residence/locations.h"
#include "replica/machine/operations.h"

namespace poprun::passes::locations {
namespace {

constexpr std::string_view kName = "locations";

bool applies(const CompileOptions& options) {
  const LocationOptions& o = options.locations;
  return !o.overrides.empty() ||
         std::ranges::any_of(std::array{o.weights, o.optimizer_state, o.accumulators, o.activations},
                             [](Storage storage) { return storage == Storage::kOffChip; });
}

std::string_view name_of(Kept kept) {
  constexpr std::array<std::string_view, 4> kNames = {"weights", "optimiser state", "accumulators",
                                                      "activations in stashes"};
  return kNames.at(static_cast<std::size_t>(kept));
}

/// Adds a note for each kind of tensor of which some are off-chip, or which an option requests off-chip in vain.
void note_kinds(const CompileOptions& options, const std::vector<Location>& locations, Job& job) {
  const LocationOptions& o = options.locations;
  const std::array storages{o.weights, o.optimizer_state, o.accumulators, o.activations};
  for (std::size_t k = 0; k < storages.size(); ++k) {
    std::int64_t moved = 0;
    std::int64_t stayed = 0;
    Bytes bytes;
    for (const Location& location : locations) {
      if (location.kept == static_cast<Kept>(k)) {
        (location.off_chip ? moved : stayed) += 1;
        bytes += location.off_chip ? job.graph.bytes({location.tensor}) : Bytes{};
      }
    }
    const std::string_view name = name_of(static_cast<Kept>(k));
    if (moved > 0) {
      job.notes.push_back(
          {"locations.off-chip",
           fmt::format(
               "{} off-chip: {} in {}{}", name, mebibytes_text(static_cast<std::uint64_t>(bytes.count())),
               counted(static_cast<std::uint64_t>(moved), "tensor"),
               stayed == 0 ? "" : fmt::format("; {} on-chip", counted(static_cast<std::uint64_t>(stayed), "tensor"))),
           {{"kind", std::string{name}}, {"bytes", bytes}, {"tensors", moved}, {"on-chip", stayed}}});
    } else if (storages.at(k) == Storage::kOffChip && stayed > 0) {
      job.notes.push_back(
          {"locations.on-chip",
           fmt::format("{}: {} kept on-chip because of memory.location, memory.off-chip-min-elements or memory.phases",
                       name, counted(static_cast<std::uint64_t>(stayed), "tensor")),
           {{"kind", std::string{name}}, {"on-chip", stayed}}});
    } else if (storages.at(k) == Storage::kOffChip) {
      const bool of_one_phase = stayed > 0 && static_cast<Kept>(k) == Kept::kAccumulator && options.pipeline.phases > 1;
      job.notes.push_back({"option.no-effect",
                           of_one_phase ? "accumulators stay on-chip: each is live in only one phase"
                                        : fmt::format("the job has no {} that could be kept off-chip", name),
                           {{"kind", std::string{name}}}});
    }
  }
}

/// Adds a note for each override that matches no tensor. Requires: decide_locations accepts the options.
void note_overrides(const CompileOptions& options, const std::vector<Location>& locations, Job& job) {
  for (const LocationOptions::Override& one : options.locations.overrides) {
    const Pattern pattern(one.tensors);
    if (std::ranges::none_of(locations, [&](const Location& location) {
          return pattern.finds(job.graph.tensor(location.tensor).name);
        })) {
      job.notes.push_back({"option.no-effect",
                           fmt::format("memory.location {} has no effect: no weight, optimiser state, accumulator or "
                                       "stash has a matching name",
                                       one.tensors),
                           {{"option", "memory.location"}, {"tensors", one.tensors}}});
    }
  }
}

Status run(const CompileOptions& options, Job& job) {
  const std::vector<Place> phases = job.training ? job.training->phases : std::vector<Place>{};
  POPRUN_ASSIGN(const std::vector<Location> locations, decide_locations(job.graph, options.locations, phases));
  keep_off_chip(job.graph, locations, job.training ? std::optional(job.training->update) : std::nullopt, phases);
  note_kinds(options, locations, job);
  note_overrides(options, locations, job);
  for (const Location& location : locations) {
    const Tensor& tensor = job.graph.tensor(location.tensor);
    job.locations.push_back(fmt::format(
        "{}: {} ({})", tensor.name, word_of(location.off_chip ? Storage::kOffChip : Storage::kOnChip), location.why));
  }
  return {};
}

/// Tensors that phases keep on the chip.
struct OfPhases {
  /// For each function that a phase calls, the tensors loaded or written since the step began.
  std::map<std::string, std::set<TensorId>> before;
  /// For each function with phases and each region after a phase, the tensors that the phase uses.
  std::map<std::pair<std::string, std::size_t>, std::set<TensorId>> behind;
};

std::set<TensorId> named_by(const Graph& graph, const std::string& function) {
  std::set<TensorId> named;
  for (const Region& region : find_function(graph, function)->regions) {
    for (const Operation& operation : region.operations) {
      named.insert(operation.inputs.begin(), operation.inputs.end());
      named.insert(operation.outputs.begin(), operation.outputs.end());
    }
  }
  return named;
}

OfPhases of_phases(const Job& job) {
  const Graph& graph = job.graph;
  const std::vector<Place> phases = job.training ? job.training->phases : std::vector<Place>{};
  OfPhases of;
  std::set<TensorId> written;
  std::size_t next = 0;
  for (std::size_t p = 0; p < phases.size(); ++p) {
    const Function& caller = graph.functions.at(phases[p].function);
    for (; next <= phases[p].region; ++next) {
      for (const Operation& operation : caller.regions.at(next).operations) {
        written.insert(operation.outputs.begin(), operation.outputs.end());
      }
    }
    const std::size_t stores = p + 1 < phases.size() ? phases[p + 1].region - 1 : phases[p].region + 1;
    for (const Operation& operation : graph.at(phases[p]).operations) {
      if (const std::optional<Call> call = Call::from(operation)) {
        of.before[call->function] = written;
        of.behind[{caller.name, stores}].merge(named_by(graph, call->function));
      }
    }
  }
  return of;
}

/// Checks that every off-chip variable has an exclusive entry of the same type, and that every region loads or writes
/// it before reading it. A function that a phase calls finds what was loaded before the phase, and the region after the
/// phase finds what the phase used or wrote. The equivalence proof shows that no stores are missing.
Status verify(const CompileOptions& /*options*/, const Job& /*before*/, const Job& after) {
  const Graph& graph = after.graph;
  std::set<std::pair<TensorId, std::int64_t>> taken;
  for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
    const std::optional<Residence>& where = graph.tensors()[t].residence;
    if (!where || where->entry == Residence::kWhole) {
      continue;
    }
    const Tensor& buffer = graph.tensor(where->tensor);
    const TensorType& type = graph.tensors()[t].type;
    if (!buffer.is_remote() || buffer.ipu != graph.tensors()[t].ipu || buffer.type.data != type.data ||
        entry_type(buffer.type).shape != type.shape || where->entry >= buffer.type.shape[0]) {
      return pass_bug(kName, graph, TensorId{t}, "does not match the buffer entry in which it resides");
    }
    if (!taken.insert({where->tensor, where->entry}).second) {
      return pass_bug(kName, graph, TensorId{t}, "resides in the same buffer entry as another tensor");
    }
  }
  OfPhases phases = of_phases(after);
  for (const Function& function : graph.functions) {
    for (std::size_t r = 0; r < function.regions.size(); ++r) {
      std::set<TensorId> here = phases.before[function.name];
      here.merge(phases.behind[{function.name, r}]);
      for (const Operation& operation : function.regions[r].operations) {
        for (const TensorId id : operation.inputs) {
          const auto& where = graph.tensor(id).residence;
          if (where && where->entry != Residence::kWhole && !here.contains(id)) {
            return pass_bug(kName, graph, id,
                            fmt::format("is read by {} in {} before it is loaded", operation.kind, function.name));
          }
        }
        here.insert(operation.outputs.begin(), operation.outputs.end());
      }
    }
  }
  return {};
}

}  // namespace

Pass pass() {
  return {kName, applies, run, verify, true};
}

}  // namespace poprun::passes::locations
