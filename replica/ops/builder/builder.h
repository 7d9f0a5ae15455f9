#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replica/graph/graph.h"
#include "replica/machine/initialise.h"
#include "replica/ops/operator.h"

namespace poprun {

/// Appends operations to one region of a graph, with output types from the operators' shape faces.
///
/// The first error sticks: later calls do nothing and return an arbitrary id, and `status` tells.
/// So models read like the network they describe, and are checked once, at the end.
class Builder {
 public:
  /// Appends at `place`. New tensors' names get `prefix`.
  Builder(Graph& graph, Place place, std::string prefix);

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

  /// Appends an operation as it is: one of the machine's (replica/machine).
  void append(Operation operation);

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
  Graph& graph_;
  Place place_;
  std::string prefix_;
  Status status_;
};

}  // namespace poprun
