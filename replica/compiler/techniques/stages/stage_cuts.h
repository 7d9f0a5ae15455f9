#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/note.h"
#include "replica/graph/graph.h"

/// Cuts the forward pass of a model into pipeline stages, as the options request.
///
///   layers       embeddings  0  1  2  3  4  5  head        embeddings and head are not counted
///   3 -1         '---- stage 0 ----''--- stage 1 --'
///   0 2 2 2 0    '- 0 --''- 1 -''- 2 -''- 3 -''- 4'
namespace poprun {

struct ForwardPass {
  const Graph& graph;
  Place place;
  std::string_view prefix;  ///< Prefix of its tensors' names: "evaluate/", or nothing.
  std::string_view model;   ///< For messages.

  [[nodiscard]] const std::vector<Operation>& operations() const { return graph.at(place).operations; }
};

/// The beginning of a stage. This and later stages hold the operations of all later layers, and those operations of
/// `layer` whose index in the forward pass is `operation` or higher.
struct StageCut {
  std::int32_t layer = 0;
  std::size_t operation = 0;  ///< 0: the whole layer.

  friend auto operator<=>(const StageCut&, const StageCut&) = default;
};

/// Returns the cuts between stages, each of which holds as many counted layers as its entry of `layers_per_ipu` states.
/// One entry may be -1, for all remaining layers. Layers that are not counted belong to the stage of the counted layer
/// before them; layers before the first counted layer belong to the first stage, and layers after the last one to the
/// last stage. A first or last stage whose entry is 0 therefore holds only embeddings or heads. Errors: kUsage if the
/// sum is not the number of layers or a stage would be empty. Messages list the layers.
Result<std::vector<StageCut>> cuts_by_counts(const ForwardPass& forward, std::span<const std::int64_t> layers_per_ipu);

/// Returns the cuts before the layers with these names or, if a name is a tensor's, before the operation that writes
/// it. Errors: kUsage if a name is neither a layer nor a tensor of the forward pass (the message suggests the nearest
/// name), or if the names are not in the order of the forward pass.
Result<std::vector<StageCut>> cuts_by_names(const ForwardPass& forward, std::span<const std::string> names);

std::vector<StageCut> cuts_before(std::span<const std::size_t> layers);

/// Returns a note on what "balanced" means if the stages begin with these layers: "3 7 7 7" or, if counts cannot
/// express the split, "pipeline.split = pooler". The note ends with `how`, which explains how the stages were found.
Note balanced_note(std::span<const Layer> layers, std::span<const std::size_t> begins, std::string_view how = {});

/// Returns names as text for a message. Long lists are abbreviated in the middle: "a, b, c, d, ..., y, z (26 in all)".
std::string abbreviated(std::span<const std::string> names);

std::vector<std::string> names_of(std::span<const Layer> layers);

/// Indices of a forward pass's operations, each keyed by the name in the model of the first tensor that it writes.
using Positions = std::map<std::string, std::size_t, std::less<>>;
Positions positions_in(const ForwardPass& forward);

/// Assigns operations to stages. `cuts` and `positions` come from one forward pass, possibly a different one of the
/// same model. An operation gets the position of the operation in that pass that writes the same tensor or, if there is
/// none, the position of the operation before it. Operations without a layer belong to the latest stage that they read
/// from. Errors: kUsage if an operation would read a tensor that a later stage writes; the message names both.
Status assign_stages(Graph& graph, const ForwardPass& forward, const Positions& positions,
                     std::span<const StageCut> cuts);

/// Checks that no stage is empty. Errors: kUsage, with the stage, the setting `asked` and a list of the layers.
Status check_no_stage_is_empty(const ForwardPass& forward, std::size_t stages, std::string_view asked);

}  // namespace poprun
