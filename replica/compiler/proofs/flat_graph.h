#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/compiler/proofs/value.h"
#include "replica/graph/graph.h"

namespace poprun {

enum class Effect : std::uint8_t {
  kComputes,    ///< Its outputs are new values, computed from its inputs.
  kReduces,     ///< Each output is a new value, computed from the input at the same position.
  kStreamsIn,   ///< Its outputs come from the host.
  kStreamsOut,  ///< The host reads its inputs.
  kAwaits,      ///< Each output is the input at the same position, whose background reduction ends here.
  kMoves,       ///< Each output is the input at the same position.
  kStashes,
  kScatters,  ///< Its outputs are shards of the outputs that kReduces would compute.
  kShards,    ///< Each output is the shard of the input at the same position.
  kGathers,   ///< Each output is the full tensor whose shard is the input at the same position.
  kRestores,
  kCalls,
};

struct FlatOperation {
  Effect effect = Effect::kComputes;
  bool reads_moment = false;   ///< Identical inputs give different values in different micro-batches.
  bool in_place = false;       ///< At least one output is also an input.
  bool in_background = false;  ///< In reductions: the outputs may be used only after an await.
  /// Numbers of leading inputs and outputs that are sharded if the operation works on shards (Operator::on_shards).
  std::uint32_t cut_inputs = 0;
  std::uint32_t cut_outputs = 0;
  /// Hash of the kind, attributes and output types, but not the inputs. For an all-reduce or a stream, it covers only
  /// what all its tensors have in common.
  Number what;
  std::uint32_t inputs = 0;  ///< Index of the first input in FlatGraph::ids; the outputs follow the inputs.
  std::uint32_t input_count = 0;
  std::uint32_t output_count = 0;
  std::uint32_t function = 0;    ///< The function that contains it.
  std::uint32_t callee = 0;      ///< In calls: the called function.
  std::int64_t micro_batch = 0;  ///< In calls: added to the micro-batch index of the caller.
  std::int64_t entry = 0;        ///< In calls: added to the callee's entries of remote buffers.
  std::uint32_t group = 0;       ///< In exchanges of shards: number of replicas that share a tensor; 0: all.
  std::uint32_t entries = 0;     ///< In moves of entries: index of the first one in FlatGraph::entries; otherwise 0.
  std::uint32_t call = 0;        ///< In calls: position among the calls of the same callee.
  /// If the operation's random numbers depend on its call's salts, the index in FlatGraph::salted of its `what` for the
  /// first call; those for the other calls follow. Otherwise kNotSalted.
  std::uint32_t salted = ~std::uint32_t{0};
  std::uint32_t parts = 0;  ///< In streams from the host: index of the first part in FlatGraph::parts.
  const Operation* source = nullptr;
};

struct FlatRegion {
  std::int64_t repeat = 1;
  std::uint32_t begin = 0;  ///< Index into FlatGraph::operations.
  std::uint32_t end = 0;
};

struct FlatFunction {
  std::string name;
  bool called = false;  ///< Whether other functions call it; the host runs those that are not called.
  std::vector<FlatRegion> regions;
};

/// The entries of a stash or remote buffer. Values are kept in slots: one per tensor, followed by one per entry.
struct FlatStash {
  std::uint32_t tensor = 0;
  std::uint32_t begin = 0;  ///< Slot of entry 0.
  std::uint32_t length = 0;
};

inline constexpr std::uint32_t kNotSalted = ~std::uint32_t{0};
inline constexpr std::uint32_t kNoStash = ~std::uint32_t{0};

/// A graph flattened to arrays of ids, for the interpreter to follow operation by operation.
struct FlatGraph {
  const Graph* graph = nullptr;
  bool has_calls = false;
  std::vector<FlatFunction> functions;  ///< In the same order as in the graph.
  std::vector<FlatOperation> operations;
  std::vector<std::uint32_t> ids;
  std::vector<Number> parts;  ///< For each output of a host stream: hash of its field in the record.
  std::vector<Number> salted;
  std::vector<FlatStash> stashes;
  /// For each move of entries, the source entry of each tensor, then the target entries; Copy::kWhole means a full
  /// tensor. Element 0 is unused.
  std::vector<std::int64_t> entries = {0};
  std::vector<std::uint32_t> stash_of;  ///< For each tensor: index into `stashes`, or kNoStash.
  std::uint32_t slots = 0;

  [[nodiscard]] std::span<const std::uint32_t> inputs(const FlatOperation& o) const {
    return {ids.data() + o.inputs, o.input_count};
  }
  [[nodiscard]] std::span<const std::uint32_t> outputs(const FlatOperation& o) const {
    return {ids.data() + o.inputs + o.input_count, o.output_count};
  }
  [[nodiscard]] const Number& what(const FlatOperation& o, std::uint32_t call) const {
    return o.salted == kNotSalted ? o.what : salted[o.salted + call];
  }
  [[nodiscard]] const std::string& name(std::uint32_t tensor) const { return graph->tensors()[tensor].name; }
  /// Returns the name of the tensor in the slot, or of the stash to which the slot's entry belongs.
  [[nodiscard]] const std::string& slot_name(std::uint32_t slot) const;
};

/// Flattens a graph, which must outlive the result. Requires: `verify_operations` holds for it. Errors: kBug if a call
/// names an unknown function, or does not provide the salts that its callee's operations need.
Result<FlatGraph> flatten(const Graph& graph);

}  // namespace poprun
