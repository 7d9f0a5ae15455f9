#include "replica/compiler/techniques/stages/stage_cuts.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"

namespace poprun {
namespace {

constexpr std::int64_t kRest = -1;

std::vector<std::int32_t> counted_layers(const Graph& graph) {
  std::vector<std::int32_t> indices;
  for (std::size_t l = 0; l < graph.layers.size(); ++l) {
    if (graph.layers[l].counted) {
      indices.push_back(static_cast<std::int32_t>(l));
    }
  }
  return indices;
}

/// Returns an error that explains what is wrong with these entries and lists the layers.
tl::unexpected<Error> wrong_counts(const ForwardPass& forward, std::span<const std::int64_t> entries,
                                   const std::string& what) {
  std::vector<std::string> names;
  for (const std::int32_t layer : counted_layers(forward.graph)) {
    names.push_back(forward.graph.layers[static_cast<std::size_t>(layer)].name);
  }
  return fail(ErrorCode::kUsage, fmt::format("pipeline.layers-per-ipu = {}: {}; layers: {}", fmt::join(entries, " "),
                                             what, names.empty() ? "none" : abbreviated(names)));
}

/// Returns the entries, with -1 replaced by the number of remaining layers.
Result<std::vector<std::int64_t>> resolved(const ForwardPass& forward, std::span<const std::int64_t> entries,
                                           std::int64_t layers) {
  std::vector<std::int64_t> counts(entries.begin(), entries.end());
  const auto rest = std::ranges::find(counts, kRest);
  const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{rest == counts.end() ? 0 : 1});
  if (rest != counts.end() && std::ranges::count(counts, kRest) > 1) {
    return wrong_counts(forward, entries, "only one entry may be -1 (all remaining layers)");
  }
  const std::string had = fmt::format("{} has {}", forward.model, counted(static_cast<std::uint64_t>(layers), "layer"));
  if (rest == counts.end() && sum != layers) {
    // The largest entry can take the remaining layers if the other entries leave any.
    const bool has_rest = sum - std::ranges::max(counts) < layers;
    return wrong_counts(forward, entries,
                        fmt::format("{}, but the entries add up to {}; {}", had, sum,
                                    has_rest ? "set the largest to -1 (all remaining layers)" : "lower the entries"));
  }
  if (sum > layers) {
    return wrong_counts(forward, entries,
                        fmt::format("{}, but the entries besides -1 add up to {}; lower these entries", had, sum));
  }
  if (rest != counts.end()) {
    *rest = layers - sum;
  }
  return counts;
}

/// Returns the first layer of a stage that follows `before` counted layers.
std::int32_t first_layer(std::span<const std::int32_t> counted, std::size_t before) {
  return before < counted.size() ? counted[before] : counted.back() + 1;
}

/// Returns the cut at the operation of the forward pass that writes the tensor with this name in the model.
std::optional<StageCut> writer_of(const ForwardPass& forward, const std::string& name) {
  const std::string full = fmt::format("{}{}", forward.prefix, name);
  if (!forward.graph.has(full)) {
    return std::nullopt;
  }
  const TensorId id = forward.graph.find(full);
  const std::vector<Operation>& operations = forward.operations();
  const auto writer = std::ranges::find_if(operations, [id](const Operation& operation) {
    return operation.origin.layer != kNoLayer && std::ranges::find(operation.outputs, id) != operation.outputs.end();
  });
  if (writer == operations.end()) {
    return std::nullopt;
  }
  return StageCut{writer->origin.layer, static_cast<std::size_t>(writer - operations.begin())};
}

/// Returns all names at which a stage may begin: layers, then tensors.
std::vector<std::string> candidates(const ForwardPass& forward) {
  std::vector<std::string> names = names_of(forward.graph.layers);
  for (const Operation& operation : forward.operations()) {
    for (const TensorId id : operation.outputs) {
      const std::string_view name = forward.graph.tensor(id).name;
      if (operation.origin.layer != kNoLayer && name.starts_with(forward.prefix)) {
        names.emplace_back(name.substr(forward.prefix.size()));
      }
    }
  }
  return names;
}

std::string lower(std::string_view text) {
  std::string lowered(text);
  std::ranges::transform(lowered, lowered.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lowered;
}

/// Returns the layer that a name probably means, or an empty string. The name may differ from the layer's in case, lack
/// the layer's prefix ("h.2" for "transformer.h.2"), or continue with a part of the layer ("h.2.attn", "conv1.weight").
std::string layer_within(const std::vector<Layer>& layers, std::string name) {
  const auto has_letter = [](const std::string& text) {
    return std::ranges::any_of(text, [](char c) { return c >= 'a' && c <= 'z'; });
  };
  name = lower(name);
  for (std::size_t end = name.size(); end != std::string::npos && end > 0; end = name.rfind('.', end - 1)) {
    const std::string beginning = name.substr(0, end);
    const auto layer = std::ranges::find_if(layers, [&](const Layer& candidate) {
      const std::string whole = lower(candidate.name);
      return whole == beginning || (has_letter(beginning) && whole.ends_with("." + beginning));
    });
    if (layer != layers.end()) {
      return layer->name;
    }
  }
  return {};
}

/// Returns the first layer that computes a tensor whose name contains `name`, as "layer1.0.conv3" contains "layer1.0".
/// Returns an empty string if there is none.
std::string layer_around(const ForwardPass& forward, const std::string& name) {
  const std::string part = fmt::format(".{}.", lower(name));
  for (const Operation& operation : forward.operations()) {
    for (const TensorId id : operation.outputs) {
      if (operation.origin.layer != kNoLayer &&
          lower(fmt::format(".{}.", forward.graph.tensor(id).name)).find(part) != std::string::npos) {
        return forward.graph.layers.at(static_cast<std::size_t>(operation.origin.layer)).name;
      }
    }
  }
  return {};
}

/// Returns the name that was probably meant by `name`; empty if there is none.
std::string meant_by(const ForwardPass& forward, const std::string& name) {
  std::string close = layer_within(forward.graph.layers, name);
  close = close.empty() ? layer_around(forward, name) : close;
  return close.empty() ? nearest(name, candidates(forward)) : close;
}

Result<StageCut> cut_at(const ForwardPass& forward, const std::string& name) {
  const std::vector<Layer>& layers = forward.graph.layers;
  const auto layer = std::ranges::find(layers, name, &Layer::name);
  if (layer != layers.end()) {
    return StageCut{static_cast<std::int32_t>(layer - layers.begin())};
  }
  if (const std::optional<StageCut> writer = writer_of(forward, name)) {
    return *writer;
  }
  if (name.find(',') != std::string::npos) {
    std::string blanks = name;
    std::ranges::replace(blanks, ',', ' ');
    return fail(ErrorCode::kUsage, fmt::format("pipeline.split = {}: names are separated by blanks, not commas; write "
                                               "{}",
                                               name, blanks));
  }
  const std::string close = meant_by(forward, name);
  return fail(
      ErrorCode::kUsage,
      fmt::format("pipeline.split: {} has no layer '{}', and its forward pass produces no tensor of that name; {}",
                  forward.model, name,
                  close.empty() ? fmt::format("layers: {}", abbreviated(names_of(layers)))
                                : fmt::format("did you mean {}?", close)));
}

/// Returns the name in the model of the first tensor that an operation writes; empty if it writes none.
std::string_view written_name(const ForwardPass& forward, const Operation& operation) {
  if (operation.outputs.empty()) {
    return {};
  }
  std::string_view name = forward.graph.tensor(operation.outputs[0]).name;
  name.remove_prefix(name.starts_with(forward.prefix) ? forward.prefix.size() : 0);
  return name;
}

}  // namespace

Result<std::vector<StageCut>> cuts_by_counts(const ForwardPass& forward, std::span<const std::int64_t> layers_per_ipu) {
  const std::vector<std::int32_t> counted = counted_layers(forward.graph);
  POPRUN_ASSIGN(const std::vector<std::int64_t> counts,
                resolved(forward, layers_per_ipu, static_cast<std::int64_t>(counted.size())));
  std::vector<StageCut> cuts;
  std::int32_t begin = 0;  // The stage's first layer; the stage is empty if the next stage also begins there.
  std::size_t before = 0;
  for (std::size_t stage = 0; stage < counts.size(); ++stage) {
    before += static_cast<std::size_t>(counts[stage]);
    const bool is_last = stage + 1 == counts.size();
    const auto end = is_last || counted.empty() ? static_cast<std::int32_t>(forward.graph.layers.size())
                                                : first_layer(counted, before);
    if (end == begin) {
      return wrong_counts(forward, layers_per_ipu,
                          fmt::format("stage {} would be empty; an entry may be 0 only for a first stage of "
                                      "embeddings or a last stage of heads",
                                      stage));
    }
    begin = end;
    if (!is_last) {
      cuts.push_back({begin});
    }
  }
  return cuts;
}

Result<std::vector<StageCut>> cuts_by_names(const ForwardPass& forward, std::span<const std::string> names) {
  std::vector<StageCut> cuts;
  for (std::size_t k = 0; k < names.size(); ++k) {
    POPRUN_ASSIGN(const StageCut cut, cut_at(forward, names[k]));
    if (k > 0 && cut <= cuts.back()) {
      return fail(ErrorCode::kUsage,
                  fmt::format("pipeline.split: '{}' does not come after '{}' in {}; list the "
                              "names in the order of the forward pass; layers: {}",
                              names[k], names[k - 1], forward.model, abbreviated(names_of(forward.graph.layers))));
    }
    cuts.push_back(cut);
  }
  return cuts;
}

std::vector<StageCut> cuts_before(std::span<const std::size_t> layers) {
  std::vector<StageCut> cuts;
  std::ranges::transform(layers, std::back_inserter(cuts),
                         [](std::size_t layer) { return StageCut{static_cast<std::int32_t>(layer)}; });
  return cuts;
}

Note balanced_note(std::span<const Layer> layers, std::span<const std::size_t> begins, std::string_view how) {
  std::vector<std::int64_t> counts(begins.size() + 1, 0);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const auto stage = std::ranges::upper_bound(begins, l) - begins.begin();
    counts[static_cast<std::size_t>(stage)] += layers[l].counted ? 1 : 0;
  }
  const bool counts_suffice = std::ranges::all_of(begins, [&](std::size_t begin) {
    return layers[begin].counted || (begin == begins.back() && layers[begin - 1].counted && counts.back() == 0);
  });
  std::vector<std::string> names;
  std::ranges::transform(begins, std::back_inserter(names), [&](std::size_t begin) { return layers[begin].name; });
  const std::string split = counts_suffice ? fmt::format("{}", fmt::join(counts, " "))
                                           : fmt::format("pipeline.split = {}", fmt::join(names, " "));
  return {"stages.balanced",
          fmt::format("pipeline.layers-per-ipu = balanced means {} for this job{}", split, how),
          {{"split", split}}};
}

std::string abbreviated(std::span<const std::string> names) {
  constexpr std::size_t kAtMost = 8;
  constexpr std::size_t kFirst = 4;
  constexpr std::size_t kLast = 2;
  if (names.size() <= kAtMost) {
    return fmt::format("{}", fmt::join(names, ", "));
  }
  return fmt::format("{}, ..., {} ({} in all)", fmt::join(names.first(kFirst), ", "),
                     fmt::join(names.last(kLast), ", "), names.size());
}

std::vector<std::string> names_of(std::span<const Layer> layers) {
  std::vector<std::string> names;
  std::ranges::transform(layers, std::back_inserter(names), &Layer::name);
  return names;
}

Positions positions_in(const ForwardPass& forward) {
  Positions positions;
  const std::vector<Operation>& operations = forward.operations();
  for (std::size_t k = 0; k < operations.size(); ++k) {
    positions.emplace(written_name(forward, operations[k]), k);
  }
  return positions;
}

Status assign_stages(Graph& graph, const ForwardPass& forward, const Positions& positions,
                     std::span<const StageCut> cuts) {
  std::map<TensorId, std::uint32_t> written_in;
  StageCut place;
  for (Operation& operation : graph.at(forward.place).operations) {
    std::uint32_t latest = 0;
    TensorId latest_input{};
    for (const TensorId id : operation.inputs) {
      const auto writer = written_in.find(id);
      if (writer != written_in.end() && writer->second > latest) {
        latest = writer->second;
        latest_input = id;
      }
    }
    if (operation.origin.layer == kNoLayer) {
      operation.origin.stage = latest;
    } else {
      const auto position = positions.find(written_name(forward, operation));
      place = {operation.origin.layer, position == positions.end() ? place.operation : position->second};
      operation.origin.stage = static_cast<std::uint32_t>(std::ranges::upper_bound(cuts, place) - cuts.begin());
    }
    if (operation.origin.stage < latest) {
      return fail(ErrorCode::kUsage, fmt::format("pipeline: '{}' in stage {} reads '{}' from the later stage {}; "
                                                 "cut {} only where all values flow forward",
                                                 written_name(forward, operation), operation.origin.stage,
                                                 graph.tensor(latest_input).name, latest, forward.model));
    }
    for (const TensorId id : operation.outputs) {
      written_in[id] = operation.origin.stage;
    }
  }
  return {};
}

Status check_no_stage_is_empty(const ForwardPass& forward, std::size_t stages, std::string_view asked) {
  if (stages == 1) {
    return {};
  }
  std::set<std::uint32_t> used;
  for (const Operation& operation : forward.operations()) {
    if (operation.origin.layer != kNoLayer) {
      used.insert(operation.origin.stage);
    }
  }
  for (std::uint32_t stage = 0; stage < stages; ++stage) {
    if (!used.contains(stage)) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{}: stage {} would be empty: no layer of {} begins before the "
                              "next stage does; layers: {}",
                              asked, stage, forward.model, abbreviated(names_of(forward.graph.layers))));
    }
  }
  return {};
}

}  // namespace poprun
