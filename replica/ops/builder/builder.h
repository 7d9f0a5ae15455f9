#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replica/graph/graph.h"
#include "replica/machine/operations.h"
#include "replica/ops/operator.h"

namespace poprun {

/// Appends operations to one region of a graph, with output types from the operators' shape faces.
///
/// The first error sticks: later calls do nothing and return an arbitrary id, and `status` tells.
/// So models read like the network they describe, and are checked once, at the end.
///
/// Errors, which name the tensor
///   as the operator's shape face   the operands do not fit
///   kBug                           a mistake of the model's file: no such operator, another
///                                  number of outputs, a name that is taken
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
  /// new one, set up in the function "load". An existing one has that type and role.
  TensorId variable(const std::string& name, TensorType type, Role role, Initialiser initialiser);

  /// A tensor f32 of `values`, row-major, that the model computes once, by its full name: the one
  /// there is, or a new one, made in the function "load". It is float32 in half precision too.
  /// Cost: the values stand in the Program as text, some ten bytes each.
  TensorId constant(const std::string& name, Shape shape, std::vector<double> values);

  /// Lets a tensor of the model stay float32 in half precision; what is computed from it does not.
  void keep_f32(TensorId id);

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
  /// The outputs of a use of an operator, which is called `name` in errors; nothing where it is
  /// refused.
  std::optional<std::vector<TensorType>> checked(const std::string& kind,
                                                 const std::vector<TensorId>& inputs,
                                                 const Attributes& attributes,
                                                 const std::string& name);

  /// Makes a sticking kBug.
  void blame(const std::string& name, const std::string& what);

  /// The variable of that name that there is, where it is of that type and role.
  std::optional<TensorId> existing(const std::string& name, const TensorType& type, Role role);

  Graph& graph_;
  Place place_;
  std::string prefix_;
  Status status_;
};

}  // namespace poprun
