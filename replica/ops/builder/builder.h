#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replica/graph/graph.h"
#include "replica/machine/operations.h"
#include "replica/ops/face/operator.h"

namespace poprun {

/// Chooses the names of new tensors.
enum class Naming : std::uint8_t {
  kCompiler,  ///< They give way where another tensor has one.
  kModel,     ///< Its author, so that two with one name are a mistake.
};

/// Appends operations to one region of a graph, with output types from the operators' shape faces.
///
/// The first error sticks: later calls do nothing and return an arbitrary id, and `status` returns the error. So models
/// read like the network they describe and are checked once, at the end.
///
/// Errors; all name the tensor
///   as the operator's shape face   the operands do not fit
///   kBug                           a mistake in the model's source file: an unknown operator, the
///                                  wrong number of outputs, with Naming::kModel a name that
///                                  another tensor has
class Builder {
 public:
  /// Appends at `place`. Names of new tensors get `prefix`, and give way to those that are reserved (Graph::reserve).
  Builder(Graph& graph, Place place, std::string prefix, Naming naming = Naming::kCompiler);

  /// Operations added from here on belong to the model's layer with that name (no prefix): the existing one, or a new
  /// one after the others. So a model names its layers in the order of its forward pass, and its evaluation has the
  /// same ones.
  void layer(const std::string& name, bool counted = true);

  /// `layer`, for the operations of this region from `first` on too (an index into `operations()`).
  void layer_from(std::size_t first, const std::string& name);

  /// Operations added from here on have this origin.
  void set_origin(const Origin& origin) { origin_ = origin; }

  /// Adds an operation with new outputs. Output k is named names[k].
  std::vector<TensorId> add(std::string kind, std::vector<TensorId> inputs, Attributes attributes,
                            const std::vector<std::string>& names);

  /// `add` for operators with one output.
  TensorId add_one(std::string kind, std::vector<TensorId> inputs, Attributes attributes, const std::string& name);

  /// Adds an operation that updates tensors in place: its outputs are `updated`, among its inputs.
  void update(std::string kind, std::vector<TensorId> inputs, Attributes attributes, std::vector<TensorId> updated);

  /// A variable that outlives the function, by its full name (no prefix): the existing one, or a new one that the
  /// function "load" initialises. An existing one must have that type and role.
  TensorId variable(const std::string& name, TensorType type, Role role, Initialiser initialiser);

  /// A constant f32 tensor with row-major `values`, by its full name: the existing one, or a new one that the function
  /// "load" computes. It is float32 even in half precision.
  /// Cost: the Program holds the values as text, some ten bytes each.
  TensorId constant(const std::string& name, Shape shape, std::vector<double> values);

  /// Keeps a tensor of the model in float32 in half precision; what is computed from it is not kept.
  void keep_f32(TensorId id);

  /// Tensors that the host writes from `stream` at this point.
  std::vector<TensorId> stream_in(const std::string& stream, const std::vector<std::string>& names,
                                  const std::vector<TensorType>& types);

  /// Appends an operation unchanged, its origin too: one of the machine's (replica/machine).
  void append(Operation operation);

  /// True if a tensor has this name (after the prefix), or a name that begins with it and a point.
  [[nodiscard]] bool is_taken(const std::string& name) const;

  [[nodiscard]] const TensorType& type(TensorId id) const { return graph_.tensor(id).type; }
  [[nodiscard]] Graph& graph() { return graph_; }
  [[nodiscard]] const Status& status() const { return status_; }

  /// Operations of this region so far.
  [[nodiscard]] const std::vector<Operation>& operations() const;

  /// Sets the sticky error; for models that cannot be built from their input.
  void refuse(Error error);

  /// Sets the sticky error even if there is one: the same error, as seen by a caller who knows more about its cause.
  void restate(Error error);

 private:
  /// The output types of one use of an operator, which errors call `name`; nothing if it is refused.
  std::optional<std::vector<TensorType>> checked(const std::string& kind, const std::vector<TensorId>& inputs,
                                                 const Attributes& attributes, const std::string& name);

  /// Sets a sticky kBug.
  void blame(const std::string& name, const std::string& what);

  /// The existing variable with that name, if it has that type and role.
  std::optional<TensorId> existing(const std::string& name, const TensorType& type, Role role);

  Graph& graph_;
  Place place_;
  std::string prefix_;
  Origin origin_;
  Status status_;
  Naming naming_;
};

}  // namespace poprun
