#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replica/graph/graph.h"
#include "replica/ports/communicator.h"

/// The machine's operations as values, which code that builds and rewrites graphs creates and looks
/// for. `operation()` returns the graph form.
namespace poprun {

enum class Distribution : std::uint8_t {
  kConstant,  ///< Every element is the value.
  kUniform,   ///< In [-value, value).
  kNormal,    ///< Mean 0; the value is the standard deviation.
};

/// How a variable's elements are initialised before the first step. Random element i is a pure
/// function of (job seed, tensor name, i).
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

/// `a, b = stream_in() stream="train"`: the host writes a batch of a stream: of its batches since
/// the host began to run the function, the one whose number is the micro-batch index. With
/// `fields=[2,0]`, the tensors are these of the batch.
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

/// `a, b = all_reduce(a, b) reduction="mean"`: every tensor becomes its reduction over all
/// replicas, in place, in one exchange. With `background=1` it only begins; an AwaitAllReduces then
/// names the same tensors before anything else does.
struct AllReduce {
  Reduction reduction = Reduction::kSum;
  bool in_background = false;
  std::vector<TensorId> tensors;

  [[nodiscard]] Operation operation() const;

  /// The operation as an AllReduce, if it is one. Requires: its `verify` face holds.
  static std::optional<AllReduce> from(const Operation& operation);
};

/// `a, b = await_all_reduces(a, b)`: waits until every background all-reduce is done. The tensors
/// are those being reduced.
struct AwaitAllReduces {
  std::vector<TensorId> tensors;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// `a@1, b@1 = copy(a, b)`: each output becomes equal to its input, all in one exchange. One that
/// is also an input comes after the copy of what it held. The only operation that moves bytes
/// between IPUs.
struct Copy {
  std::vector<TensorId> from_tensors;
  std::vector<TensorId> to_tensors;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// `s = stash(x)`: x becomes entry `micro-batch index mod length` of s, which keeps its others and
/// holds `length` tensors like x: s is `[length, ...]` of x's shape, row-major, its entries in x's
/// own layout.
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

/// The type of a stash of `length` tensors of that type.
TensorType stash_type(const TensorType& type, std::int64_t length);

}  // namespace poprun
