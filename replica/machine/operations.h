#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replica/graph/graph.h"
#include "replica/ports/communicator.h"

/// Machine operations as values, for code that builds or rewrites graphs. `operation()` returns the graph form.
namespace poprun {

enum class Distribution : std::uint8_t {
  kConstant,  ///< Every element is the value.
  kUniform,   ///< In [-value, value).
  kNormal,    ///< Mean 0; the value is the standard deviation.
};

/// The initialisation of a variable's elements before the first step. Random element i is a pure function of (job seed,
/// tensor name, i).
struct Initialiser {
  Distribution distribution = Distribution::kConstant;
  double value = 0;
};

/// `w = initialise() uniform=0.1`: initialises a tensor before the first step.
struct Initialise {
  TensorId tensor;
  Initialiser initialiser;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// `a, b = stream_in() stream="train"`: the host writes the batch whose number is the micro-batch index, counted from
/// the start of the host's function. With `fields=[2,0]`, a and b are tensors 2 and 0 of the batch.
struct StreamIn {
  std::string stream;
  std::vector<TensorId> tensors;
  std::vector<std::int64_t> fields = {};  ///< Each tensor's index in the batch; if empty, all tensors in order.

  [[nodiscard]] Operation operation() const;
  static std::optional<StreamIn> from(const Operation& operation);
  static bool is(const Operation& operation);
};

/// `stream_out(a, b) stream="step"`: the host reads tensors.
struct StreamOut {
  std::string stream;
  std::vector<TensorId> tensors;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// `a, b = all_reduce(a, b) reduction="mean"`: every tensor becomes its reduction over all replicas, in place, in one
/// exchange. With `background=1`, the operation only begins the exchange; an AwaitAllReduces must then name the same
/// tensors before any other operation names them. With `group=4`, it reduces over groups of four consecutive replicas.
struct AllReduce {
  Reduction reduction = Reduction::kSum;
  bool in_background = false;
  std::vector<TensorId> tensors;
  std::int64_t group = 0;  ///< Number of consecutive replicas to reduce over; 0 means all.

  [[nodiscard]] Operation operation() const;

  /// Returns the operation as an AllReduce, if it is one. Requires: its `verify` face accepts it.
  static std::optional<AllReduce> from(const Operation& operation);
};

/// `a, b = await_all_reduces(a, b)`: waits until every background all-reduce has ended. The operands are the tensors of
/// all these all-reduces.
struct AwaitAllReduces {
  std::vector<TensorId> tensors;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// `a@1, b@1 = copy(a, b)`: each output becomes a copy of its input, all in one exchange. A tensor that is both input
/// and output must be copied before it is overwritten. This is the only operation that moves bytes between IPUs.
///
/// `w, b@1 = copy(W, b) from_entries=[3,-1]`: copies entry 3 of the remote buffer W to w. `W = copy(w) to_entries=[3]`:
/// copies w to entry 3 of W, which keeps its other entries. If the function is called with an entry, that entry is
/// added to those listed.
struct Copy {
  std::vector<TensorId> from_tensors;
  std::vector<TensorId> to_tensors;
  /// For each tensor, an entry of the remote buffer, or kWhole. If empty, kWhole for all tensors.
  std::vector<std::int64_t> from_entries = {};
  std::vector<std::int64_t> to_entries = {};

  static constexpr std::int64_t kWhole = -1;

  [[nodiscard]] std::int64_t from_entry(std::size_t k) const { return from_entries.empty() ? kWhole : from_entries[k]; }
  [[nodiscard]] std::int64_t to_entry(std::size_t k) const { return to_entries.empty() ? kWhole : to_entries[k]; }

  [[nodiscard]] Operation operation() const;

  /// Returns the operation as a Copy, if it is one. Requires: its `verify` face accepts it.
  static std::optional<Copy> from(const Operation& operation);
  static bool is(const Operation& operation);
};

/// `s = stash(x)`: copies x to entry `micro-batch index mod length` of s, which keeps its other entries. s holds
/// `length` tensors like x: it is row-major `[length, ...]`, where ... is x's shape, and each entry has x's layout. A
/// stash may be in Streaming Memory.
struct Stash {
  TensorId stash;
  TensorId tensor;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// `x = restore(s)`: copies entry `micro-batch index mod length` of s to x.
struct Restore {
  TensorId stash;
  TensorId tensor;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// Returns whether an operation writes one entry of a tensor and keeps the other entries.
bool keeps_other_entries(const Graph& graph, const Operation& operation, TensorId output);

/// `a.shard, b.shard = shard(a, b)`: copies the replica's shards out of full tensors. With `group=4`, here and in the
/// next two operations, four consecutive replicas share a tensor; otherwise, all replicas do.
struct Shard {
  std::vector<TensorId> tensors;
  std::vector<TensorId> shards;
  std::int64_t group = 0;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// `g.shard = reduce_scatter(g) reduction="mean"`: computes exactly the replica's shard of all_reduce(g).
struct ReduceScatter {
  Reduction reduction = Reduction::kSum;
  std::vector<TensorId> tensors;
  std::vector<TensorId> shards;
  std::int64_t group = 0;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// `a, b = all_gather(a.shard, b.shard)`: assembles full tensors from the replicas' shards.
struct AllGather {
  std::vector<TensorId> shards;
  std::vector<TensorId> tensors;
  std::int64_t group = 0;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// `all = gather_rows(own)`: concatenates the rows (axis 0) of all replicas, in the order of the replicas.
struct GatherRows {
  TensorId own;
  TensorId all;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// `own = scatter_rows(all)`: sums `all` over the replicas and takes this replica's rows of the sum. It computes the
/// gradient of the input of a gather_rows from the gradient of its output.
struct ScatterRows {
  TensorId all;
  TensorId own;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// `own = own_rows(all)`: copies the rows of `all` that a gather_rows would take from this replica.
struct OwnRows {
  TensorId all;
  TensorId own;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// Returns the type of one of `count` shards: one row, with the tensor's elements divided by `count` and rounded up.
TensorType shard_type(const TensorType& whole, std::int64_t count);

/// Returns the type of a stash or remote buffer of `length` tensors of that type.
TensorType stash_type(const TensorType& type, std::int64_t length);

/// Returns the type of one entry of a stash, row-major. Requires: the stash has a dimension.
TensorType entry_type(const TensorType& stash);

}  // namespace poprun
