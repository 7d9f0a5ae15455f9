#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/compiler/proofs/value.h"
#include "replica/graph/graph.h"

namespace poprun {

/// The effect of an operation on values.
enum class Effect : std::uint8_t {
  kComputes,    ///< Its outputs are new values, of what it is and its inputs.
  kReduces,     ///< Each output is a new value, of the input in its place.
  kStreamsIn,   ///< Its outputs are the host's.
  kStreamsOut,  ///< The host reads its inputs.
  kMoves,       ///< Each output is the input in its place.
  kStashes,
  kScatters,  ///< Its outputs are shards of what kReduces would make.
  kShards,    ///< Each output is the shard of the input in its place,
  kGathers,   ///< or the whole of it.
  kRestores,
  kCalls,
};

struct FlatOperation {
  Effect effect = Effect::kComputes;
  bool reads_moment = false;  ///< Equal inputs in two micro-batches make two values.
  bool in_place = false;      ///< Some output is an input.
  /// If it may work on shards (Operator::on_shards): inputs and outputs that are cut then.
  std::uint32_t cut_inputs = 0;
  std::uint32_t cut_outputs = 0;
  /// All but its inputs: kind, attributes, how its outputs are stored. Of an all-reduce or stream: what holds for each
  /// of its tensors.
  Number what;
  std::uint32_t inputs = 0;  ///< Begin of its ids in FlatGraph::ids; the outputs' follow.
  std::uint32_t input_count = 0;
  std::uint32_t output_count = 0;
  std::uint32_t function = 0;    ///< The function that it is in; of calls, see `callee`.
  std::uint32_t callee = 0;      ///< In calls.
  std::int64_t micro_batch = 0;  ///< In calls.
  std::int64_t entry = 0;        ///< In calls.
  std::uint32_t group = 0;       ///< In exchanges of shards: replicas that share a tensor; 0: all.
  std::uint32_t entries = 0;     ///< In moves of entries: begin in FlatGraph::entries, from 1 on.
  std::uint32_t call = 0;        ///< In calls: which of those of its callee.
  /// Where FlatGraph::salted has `what` by call, for an operation that draws random numbers of its call's salts.
  /// Otherwise kNotSalted.
  std::uint32_t salted = ~std::uint32_t{0};
  std::uint32_t parts = 0;  ///< In streams from the host: begin in FlatGraph::parts.
  const Operation* source = nullptr;
};

struct FlatRegion {
  std::int64_t repeat = 1;
  std::uint32_t begin = 0;  ///< Into FlatGraph::operations.
  std::uint32_t end = 0;
};

struct FlatFunction {
  std::string name;
  bool called = false;  ///< By others; the host runs those that are not.
  std::vector<FlatRegion> regions;
};

/// The entries of a stash or remote buffer. Values are kept in slots: one a tensor, then one an entry.
struct FlatStash {
  std::uint32_t tensor = 0;
  std::uint32_t begin = 0;  ///< Slot of entry 0.
  std::uint32_t length = 0;
};

inline constexpr std::uint32_t kNotSalted = ~std::uint32_t{0};
inline constexpr std::uint32_t kNoStash = ~std::uint32_t{0};

/// A graph as arrays of ids, to be followed operation by operation.
struct FlatGraph {
  const Graph* graph = nullptr;
  bool has_calls = false;
  std::vector<FlatFunction> functions;  ///< As in the graph.
  std::vector<FlatOperation> operations;
  std::vector<std::uint32_t> ids;
  std::vector<Number> parts;  ///< What each output of a stream from the host is of its record.
  std::vector<Number> salted;
  std::vector<FlatStash> stashes;
  /// For each move of entries, the entry that each tensor is from, then the one that each is to; Copy::kWhole where it
  /// is whole. The first has no meaning.
  std::vector<std::int64_t> entries = {0};
  std::vector<std::uint32_t> stash_of;  ///< By tensor: into `stashes`, or kNoStash.
  std::uint32_t slots = 0;

  [[nodiscard]] std::span<const std::uint32_t> inputs(const FlatOperation& o) const {
    return {ids.data() + o.inputs, o.input_count};
  }
  [[nodiscard]] std::span<const std::uint32_t> outputs(const FlatOperation& o) const {
    return {ids.data() + o.inputs + o.input_count, o.output_count};
  }
  /// The operation as one call of its function runs it.
  [[nodiscard]] const Number& what(const FlatOperation& o, std::uint32_t call) const {
    return o.salted == kNotSalted ? o.what : salted[o.salted + call];
  }
  [[nodiscard]] const std::string& name(std::uint32_t tensor) const { return graph->tensors()[tensor].name; }
  /// The tensor that a slot is, or the stash whose entry it is.
  [[nodiscard]] const std::string& slot_name(std::uint32_t slot) const;
};

/// The graph must outlive the result.
/// Requires: every operation's `verify` face holds.
/// Errors: kBug, a call of no function, or of one whose operations ask for salts that it lacks.
Result<FlatGraph> flatten(const Graph& graph);

}  // namespace poprun
