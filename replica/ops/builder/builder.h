#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replica/graph/graph.h"
#include "replica/ops/operator.h"

namespace poprun {

enum class Distribution : std::uint8_t {
  kConstant,  ///< Every element is the value.
  kUniform,   ///< In [-value, value).
  kNormal,    ///< Of mean 0; the value is the standard deviation.
};

/// How a variable's elements are set before the first step.
struct Initialiser {
  Distribution distribution = Distribution::kConstant;
  double value = 0;
};

/// Appends operations to one region of a graph, with output types from the operators' shape faces.
///
/// The first error sticks: later calls do nothing and return an arbitrary id, and `status` tells.
/// So models read like the network they describe, and are checked once, at the end.
class Builder {
 public:
  /// Appends to `graph.functions[function].regions[region]`. New tensors' names get `prefix`.
  Builder(Graph& graph, std::size_t function, std::size_t region, std::string prefix);

  /// Adds an operation with new outputs. Output k is called names[k].
  std::vector<TensorId> add(std::string kind, std::vector<TensorId> inputs, Attributes attributes,
                            const std::vector<std::string>& names);

  /// `add` for operators with one output.
  TensorId add_one(std::string kind, std::vector<TensorId> inputs, Attributes attributes,
                   const std::string& name);

  /// Adds an operation that updates tensors in place: its outputs are `updated`, among its inputs.
  void update(std::string kind, std::vector<TensorId> inputs, Attributes attributes,
              std::vector<TensorId> updated);

  /// A variable that outlives the function, by its full name (no prefix): the one there is, or a
  /// new one, set up in the function "load". Requires: an existing one has that type and role.
  TensorId variable(const std::string& name, TensorType type, Role role, Initialiser initialiser);

  /// Tensors that the host writes here, from `stream`.
  std::vector<TensorId> stream_in(const std::string& stream, const std::vector<std::string>& names,
                                  const std::vector<TensorType>& types);

  /// Lets the host read tensors here.
  void stream_out(const std::string& stream, std::vector<TensorId> tensors);

  /// Reduces tensors over all replicas in place, in one exchange. `reduction`: "sum", "mean",
  /// "max".
  void all_reduce(const std::string& reduction, const std::vector<TensorId>& tensors);

  /// True where a tensor has this name (behind the prefix), or this name with a point and more.
  [[nodiscard]] bool is_taken(const std::string& name) const;

  [[nodiscard]] const TensorType& type(TensorId id) const { return graph_.tensor(id).type; }
  [[nodiscard]] Graph& graph() { return graph_; }
  [[nodiscard]] const Status& status() const { return status_; }

  /// Operations of this region so far.
  [[nodiscard]] const std::vector<Operation>& operations() const;

  /// Makes a sticking error; for models that cannot be built from what they are given.
  void refuse(Error error);

 private:
  void append(Operation operation);

  Graph& graph_;
  std::size_t function_;
  std::size_t region_;
  std::string prefix_;
  Status status_;
};

}  // namespace poprun
