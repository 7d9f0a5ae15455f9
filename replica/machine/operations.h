#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replica/graph/graph.h"
#include "replica/ports/communicator.h"

/// The machine's operations as values, which code that builds and rewrites graphs creates and looks for. `operation()`
/// returns the graph form.
namespace poprun {

enum class Distribution : std::uint8_t {
  kConstant,  ///< Every element is the value.
  kUniform,   ///< In [-value, value).
  kNormal,    ///< Mean 0; the value is the standard deviation.
};

/// How a variable's elements are initialised before the first step. Random element i is a pure function of (job seed,
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

/// `a, b = stream_in() stream="train"`: the host writes a batch of a stream: of its batches since the host began to run
/// the function, the one whose number is the micro-batch index. With `fields=[2,0]`, the tensors are these of the
/// batch.
struct StreamIn {
  std::string stream;
  std::vector<TensorId> tensors;
  std::vector<std::int64_t> fields = {};  ///< By tensor; empty: all of the batch, in its order.

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
/// exchange. With `background=1` it only begins; an AwaitAllReduces then names the same tensors before anything else
/// does. With `group=4`, over groups of four consecutive replicas.
struct AllReduce {
  Reduction reduction = Reduction::kSum;
  bool in_background = false;
  std::vector<TensorId> tensors;
  std::int64_t group = 0;  ///< Over this many consecutive replicas; 0: over all.

  [[nodiscard]] Operation operation() const;

  /// The operation as an AllReduce, if it is one. Requires: its `verify` face holds.
  static std::optional<AllReduce> from(const Operation& operation);
};

/// `a, b = await_all_reduces(a, b)`: waits until every background all-reduce is done. The tensors are those being
/// reduced.
struct AwaitAllReduces {
  std::vector<TensorId> tensors;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// `a@1, b@1 = copy(a, b)`: each output becomes equal to its input, all in one exchange. One that is also an input
/// comes after the copy of what it held. The only operation that moves bytes between IPUs.
///
/// `w, b@1 = copy(W, b) from_entries=[3,-1]`: w becomes entry 3 of the remote buffer W. `W = copy(w) to_entries=[3]`:
/// entry 3 becomes w, and W keeps its others. In a function that is called with an entry, that is added.
struct Copy {
  std::vector<TensorId> from_tensors;
  std::vector<TensorId> to_tensors;
  /// By tensor, an entry of the remote buffer, or kWhole. Empty: all are whole.
  std::vector<std::int64_t> from_entries = {};
  std::vector<std::int64_t> to_entries = {};

  static constexpr std::int64_t kWhole = -1;

  [[nodiscard]] std::int64_t from_entry(std::size_t k) const { return from_entries.empty() ? kWhole : from_entries[k]; }
  [[nodiscard]] std::int64_t to_entry(std::size_t k) const { return to_entries.empty() ? kWhole : to_entries[k]; }

  [[nodiscard]] Operation operation() const;

  /// The operation as a Copy, if it is one. Requires: its `verify` face holds.
  static std::optional<Copy> from(const Operation& operation);
  static bool is(const Operation& operation);
};

/// `s = stash(x)`: x becomes entry `micro-batch index mod length` of s, which keeps its others and holds `length`
/// tensors like x: s is `[length, ...]` of x's shape, row-major, its entries in x's own layout. A stash may lie in
/// Streaming Memory.
struct Stash {
  TensorId stash;
  TensorId tensor;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// `x = restore(s)`: x becomes entry `micro-batch index mod length` of s.
struct Restore {
  TensorId stash;
  TensorId tensor;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// Whether an operation writes one entry of a tensor and keeps its others.
bool keeps_other_entries(const Graph& graph, const Operation& operation, TensorId output);

/// `a.shard, b.shard = shard(a, b)`: the replica's part of tensors that it has whole. With `group=4`, here and in the
/// next two, four consecutive replicas have a tensor together; otherwise all have.
struct Shard {
  std::vector<TensorId> tensors;
  std::vector<TensorId> shards;
  std::int64_t group = 0;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// `g.shard = reduce_scatter(g) reduction="mean"`: the replica's part of what an all_reduce over all replicas would
/// make of g. Equal to it to the last bit.
struct ReduceScatter {
  Reduction reduction = Reduction::kSum;
  std::vector<TensorId> tensors;
  std::vector<TensorId> shards;
  std::int64_t group = 0;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// `a, b = all_gather(a.shard, b.shard)`: tensors from the parts that the replicas have.
struct AllGather {
  std::vector<TensorId> shards;
  std::vector<TensorId> tensors;
  std::int64_t group = 0;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// The type of a shard, one of `count`: one row of equally many elements on each replica, those of the tensor by
/// `count`, rounded up.
TensorType shard_type(const TensorType& whole, std::int64_t count);

/// The type of a stash or remote buffer of `length` tensors of that type.
TensorType stash_type(const TensorType& type, std::int64_t length);

/// The type of one of its entries, row-major. Requires: it has a dimension.
TensorType entry_type(const TensorType& stash);

}  // namespace poprun
