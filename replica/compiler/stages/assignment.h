#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "replica/compiler/stages/cuts.h"

namespace poprun {

/// Which operation of a forward pass writes a tensor, by the tensor's name in the model.
using Positions = std::map<std::string, std::size_t, std::less<>>;
Positions positions_in(const ForwardPass& forward);

/// Gives each operation of `forward` its stage. `cuts` are those of the forward pass that
/// `positions` are from, which may be another one of the same model: an operation counts by what it
/// writes, one that exists only here as the one before it. Operations without a layer belong to the
/// latest stage that they read from.
///
/// Errors: kUsage, an operation would read what a later stage writes; names both.
Status assign_stages(Graph& graph, const ForwardPass& forward, const Positions& positions,
                     std::span<const StageCut> cuts);

/// `asked`: the setting that says where to cut, with its value.
/// Errors: kUsage, names the setting and the stage, and lists the layers.
Status check_no_stage_is_empty(const ForwardPass& forward, std::size_t stages,
                               std::string_view asked);

}  // namespace poprun
