#include "replica/compiler/stages/assignment.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace poprun {
namespace {

/// The name in the model of what an operation writes first; empty if it writes nothing.
std::string_view written_name(const ForwardPass& forward, const Operation& operation) {
  if (operation.outputs.empty()) {
    return {};
  }
  std::string_view name = forward.graph.tensor(operation.outputs[0]).name;
  name.remove_prefix(name.starts_with(forward.prefix) ? forward.prefix.size() : 0);
  return name;
}

}  // namespace

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
      place = {operation.origin.layer,
               position == positions.end() ? place.operation : position->second};
      operation.origin.stage =
          static_cast<std::uint32_t>(std::ranges::upper_bound(cuts, place) - cuts.begin());
    }
    if (operation.origin.stage < latest) {
      return fail(ErrorCode::kUsage,
                  fmt::format("pipeline: '{}' in stage {} reads '{}', which stage {} makes; cut {} "
                              "where values flow forward only",
                              written_name(forward, operation), operation.origin.stage,
                              graph.tensor(latest_input).name, latest, forward.model));
    }
    for (const TensorId id : operation.outputs) {
      written_in[id] = operation.origin.stage;
    }
  }
  return {};
}

Status check_no_stage_is_empty(const ForwardPass& forward, std::size_t stages,
                               std::string_view asked) {
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
      return fail(
          ErrorCode::kUsage,
          fmt::format("{}: stage {} would be empty: no layer of {} begins before the "
                      "next stage does; layers: {}",
                      asked, stage, forward.model, abbreviated(names_of(forward.graph.layers))));
    }
  }
  return {};
}

}  // namespace poprun
