#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replica/graph/graph.h"
#include "replica/machine/operations.h"
#include "replica/ops/face/operator.h"

namespace poprun {

/// Ways to handle a new tensor whose name is already taken.
enum class Naming : std::uint8_t {
  kCompiler,  ///< The new tensor gets a suffix, because the compiler chose its name.
  kModel,     ///< The builder reports an error, because the model's author chose both names.
};

/// Appends operations to one region of a graph, and infers their output types with the operators' shape faces. The
/// first error is kept: later calls do nothing and return an arbitrary id, and `status` returns the error. In this way,
/// models read like the networks that they describe, and errors are checked once, at the end.
///
/// Errors, all of which name the tensor
///   error of the operator's shape face   the operands do not fit
///   kBug                                 a mistake in the model's source file: an unknown operator, the wrong number
///                                        of outputs or, with Naming::kModel, a name that is taken
class Builder {
 public:
  /// Appends at `place`. The names of new tensors start with `prefix` and are never reserved (Graph::reserve).
  Builder(Graph& graph, Place place, std::string prefix, Naming naming = Naming::kCompiler);

  /// Assigns operations added from now on to the model's layer with that name (no prefix), which is appended if the
  /// model does not have it yet. Layers are therefore in the order of the forward pass, and evaluation uses the layers
  /// of training.
  void layer(const std::string& name, bool counted = true);

  /// Assigns later operations to a layer, as `layer` does, and also this region's existing ones from index `first` on.
  void layer_from(std::size_t first, const std::string& name);

  void set_origin(const Origin& origin) { origin_ = origin; }  ///< Applies to operations added from now on.

  /// Adds an operation with new outputs. Output k gets the name names[k].
  std::vector<TensorId> add(std::string kind, std::vector<TensorId> inputs, Attributes attributes,
                            const std::vector<std::string>& names);
  TensorId add_one(std::string kind, std::vector<TensorId> inputs, Attributes attributes, const std::string& name);

  /// Adds an operation that updates tensors in place: its outputs are `updated`, which are among its inputs.
  void update(std::string kind, std::vector<TensorId> inputs, Attributes attributes, std::vector<TensorId> updated);

  /// Returns the variable with this full name (no prefix), which outlives the function. If there is none, adds one that
  /// the function "load" initialises. Requires: the variable, if it already exists, has this type and role.
  TensorId variable(const std::string& name, TensorType type, Role role, Initialiser initialiser);

  /// Returns the constant tensor with this full name; constants are f32 even in half precision. If the graph does not
  /// have it yet, adds it; "load" fills it with the row-major `values`, stored in the Program as text (about 10 B
  /// each).
  TensorId constant(const std::string& name, Shape shape, std::vector<double> values);

  /// Keeps a tensor in float32 even if the model uses half precision. Tensors computed from it are not affected.
  void keep_f32(TensorId id);

  /// Adds tensors that are read from the host's `stream` at this point, and returns them.
  std::vector<TensorId> stream_in(const std::string& stream, const std::vector<std::string>& names,
                                  const std::vector<TensorType>& types);

  /// Add the operations GatherRows, ScatterRows and OwnRows, for tensors with rows of all `replicas` on axis 0. Results
  /// are stored in the precision of the operand. Require: row-major operands; the last two, that `replicas` divides
  /// the number of rows.
  TensorId gather_rows(TensorId own, std::int64_t replicas, const std::string& name);
  TensorId scatter_rows(TensorId all, std::int64_t replicas, const std::string& name);
  TensorId own_rows(TensorId all, std::int64_t replicas, const std::string& name);

  /// Appends a data-movement or communication operation (replica/machine) unchanged, with its own origin.
  void append(Operation operation);

  /// Returns whether a tensor's name is PREFIX + `name`, or starts with PREFIX + `name` and a dot.
  [[nodiscard]] bool is_taken(const std::string& name) const;

  [[nodiscard]] const TensorType& type(TensorId id) const { return graph_.tensor(id).type; }
  [[nodiscard]] Graph& graph() { return graph_; }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] const std::vector<Operation>& operations() const;  ///< This region's operations so far.

  void refuse(Error error);   ///< Sets the sticky error (if none is set) when a model cannot be built from its input.
  void restate(Error error);  ///< Replaces the sticky error with the caller's more precise one.

 private:
  /// Returns the output types of one use of an operator, or nothing after an error. Messages refer to this use as
  /// `name`.
  std::optional<std::vector<TensorType>> checked(const std::string& kind, const std::vector<TensorId>& inputs,
                                                 const Attributes& attributes, const std::string& name);

  /// Adds the operation Rows from `operand` to a tensor whose number of rows is multiplied and divided by these.
  template <typename Rows>
  TensorId add_rows(TensorId operand, std::int64_t multiplier, std::int64_t divisor, const std::string& name);

  void blame(const std::string& name, const std::string& what);  ///< Sets the sticky error to kBug.
  /// Returns the existing tensor with that name, if any. Sets a kBug error if its type or role is different.
  std::optional<TensorId> existing(const std::string& name, const TensorType& type, Role role);

  Graph& graph_;
  Place place_;
  std::string prefix_;
  Origin origin_;
  Status status_;
  Naming naming_;
};

/// A term of a loss: the mean over the labels that count.
struct LossTerm {
  TensorId loss{};
  TensorId count{};               ///< Number of labels that count.
  std::string labels = "labels";  ///< Name of the dataset's tensor of labels.
};

/// The results of a model's forward pass: scalars for the whole micro-batch, and the outputs of inference.
struct ModelOutputs {
  TensorId loss{};                          ///< The mean over `count` items or the sum of `terms`, to be minimised.
  TensorId correct{};                       ///< Number of correct items, or -`count` if the loss has no accuracy.
  TensorId count{};                         ///< Number of items that count; padding does not.
  std::optional<TensorId> prediction = {};  ///< [micro-batch, ...]; for classifiers, the logits.
  std::vector<LossTerm> terms = {};         ///< The terms, if the loss has several.
  bool scored = true;                       ///< If false, there is only a prediction. True in training.
};

}  // namespace poprun
