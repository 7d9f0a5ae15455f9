#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/graph/graph.h"

/// Where the forward pass of a model is cut into pipeline stages, as somebody asks for it.
///
///   layers       embeddings  0  1  2  3  4  5  head        embeddings and head are not counted
///   3 -1         '---- stage 0 ----''--- stage 1 --'
///   0 2 2 2 0    '- 0 --''- 1 -''- 2 -''- 3 -''- 4'
namespace poprun {

/// The operations of a forward pass in which layers are marked.
struct ForwardPass {
  const Graph& graph;
  Place place;
  std::string_view prefix;  ///< Of its tensors' names: "evaluate/", or nothing.
  std::string_view model;   ///< For messages.

  [[nodiscard]] const std::vector<Operation>& operations() const { return graph.at(place).operations; }
};

/// The beginning of a stage: it and later ones hold the operations of later layers, and of this layer those from
/// `operation` on (an index into the forward pass).
struct StageCut {
  std::int32_t layer = 0;
  std::size_t operation = 0;  ///< 0: the whole layer.

  friend auto operator<=>(const StageCut&, const StageCut&) = default;
};

/// The cuts between stages that hold `layers_per_ipu` counted layers each; one entry may be -1 and takes the rest.
/// Layers that are not counted belong to the stage of the counted one before them, the first ones to the first stage;
/// those after the last counted one to the last stage. So a first or last stage of 0 counted layers holds embeddings or
/// heads alone.
///
/// Errors: kUsage, the sum is not the model's number of layers, or a stage would be empty. Messages list the layers.
Result<std::vector<StageCut>> cuts_by_counts(const ForwardPass& forward, std::span<const std::int64_t> layers_per_ipu);

/// The cuts before these layers or, where no layer has that name, before the operations that write these tensors.
/// Errors: kUsage, neither layer nor tensor of the forward pass (with the nearest name), or not in the order of the
/// forward pass.
Result<std::vector<StageCut>> cuts_by_names(const ForwardPass& forward, std::span<const std::string> names);

/// The cuts before these layers.
std::vector<StageCut> cuts_before(std::span<const std::size_t> layers);

/// For people, what balanced stages that begin with these layers are: "3 7 7 7" or, where counts do not give them,
/// "pipeline.split = pooler". `how` they were found ends the line.
std::string balanced_note(std::span<const Layer> layers, std::span<const std::size_t> begins,
                          std::string_view how = {});

/// Names for a message, long lists abbreviated in the middle: "a, b, c, ..., z (24)".
std::string abbreviated(std::span<const std::string> names);

/// The names of the layers.
std::vector<std::string> names_of(std::span<const Layer> layers);

/// Finds the operation of a forward pass that writes a tensor, by the tensor's name in the model.
using Positions = std::map<std::string, std::size_t, std::less<>>;
Positions positions_in(const ForwardPass& forward);

/// Gives each operation of `forward` its stage. `cuts` are those of the forward pass that `positions` are from, which
/// may be another one of the same model: an operation counts by what it writes, one that exists only here as the one
/// before it. Operations without a layer belong to the latest stage that they read from.
///
/// Errors: kUsage, an operation would read what a later stage writes; names both.
Status assign_stages(Graph& graph, const ForwardPass& forward, const Positions& positions,
                     std::span<const StageCut> cuts);

/// `asked`: the setting that says where to cut, with its value.
/// Errors: kUsage, names the setting and the stage, and lists the layers.
Status check_no_stage_is_empty(const ForwardPass& forward, std::size_t stages, std::string_view asked);

}  // namespace poprun
