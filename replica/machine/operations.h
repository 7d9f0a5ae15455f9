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

/// `a, b = stream_in() stream="train"`: the host writes the next batch of a stream.
struct StreamIn {
  std::string stream;
  std::vector<TensorId> tensors;

  [[nodiscard]] Operation operation() const;
  static bool is(const Operation& operation);
};

/// `stream_out(a, b) stream="step"`: the host reads tensors.
struct StreamOut {
  std::string stream;
  std::vector<TensorId> tensors;

  [[nodiscard]] Operation operation() const;
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

}  // namespace poprun
