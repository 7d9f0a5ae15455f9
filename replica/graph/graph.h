#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/ids.h"
#include "replica/base/units.h"
#include "replica/graph/attributes.h"
#include "replica/graph/types.h"

/// A job as data: tensors, and functions made of operations on them.
///
/// Operations run in the order in which they stand. A tensor is written once, except by operations
/// that name it both as input and output: those update it in place. Some operations compute
/// (replica/ops), others are the machine's (replica/machine): host streams, exchanges between
/// replicas, setting variables up.
namespace poprun {

/// What a tensor is for, in reports. Decides nothing about its life: liveness does.
enum class Role : std::uint8_t {
  kActivation,
  kParameter,
  kOptimizerState,
  kBuffer,  ///< Kept beside the parameters and not trained: running statistics.
  kGradient,
  kStream,
  kMetric,
  kConstant,  ///< What the host writes before the first step and nobody changes.
};

struct Tensor {
  std::string name;  ///< Unique in the graph.
  TensorType type;
  Role role = Role::kActivation;
};

struct Operation {
  std::string kind;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  Attributes attributes;
};

/// Operations that run `repeat` times in a row.
struct Region {
  std::int64_t repeat = 1;
  std::vector<Operation> operations;
};

/// What the host can ask a replica to run.
struct Function {
  std::string name;
  std::vector<Region> regions;
};

/// A region of a function. Stays the same, since functions and regions are only ever appended.
struct Place {
  std::size_t function = 0;
  std::size_t region = 0;
};

class Graph {
 public:
  /// Appends a function with a region for each repeat count; gives their places.
  std::vector<Place> add_function(std::string name, const std::vector<std::int64_t>& repeats);

  [[nodiscard]] Region& at(Place place);
  [[nodiscard]] const Region& at(Place place) const;

  /// Where variables are set up: the one region of function "load". Requires: there is one.
  [[nodiscard]] Place load() const;

  /// Requires: no other tensor has that name.
  TensorId add_tensor(Tensor tensor);

  /// The tensor of that name, or nothing found: `has` tells. Requires `has(name)`.
  [[nodiscard]] TensorId find(std::string_view name) const;
  [[nodiscard]] bool has(std::string_view name) const;

  /// True where a tensor's name begins like this.
  [[nodiscard]] bool has_below(std::string_view beginning) const;

  [[nodiscard]] const Tensor& tensor(TensorId id) const { return tensors_.at(index_of(id)); }
  void swap_names(TensorId a, TensorId b);
  void set_role(TensorId id, Role role) { tensors_.at(index_of(id)).role = role; }
  void set_data_type(TensorId id, DataType data) { tensors_.at(index_of(id)).type.data = data; }
  [[nodiscard]] const std::vector<Tensor>& tensors() const { return tensors_; }

  /// What the tensors take together.
  [[nodiscard]] Bytes bytes(const std::vector<TensorId>& ids) const;

  std::vector<Function> functions;

 private:
  std::vector<Tensor> tensors_;
  std::map<std::string, TensorId, std::less<>> by_name_;
};

/// Checks what every pass may rely on: names and ids in range, every tensor written before it is
/// read (in its function, or in an earlier one), written once unless updated in place.
/// Errors: kBug, names function, operation and tensor.
Status verify_graph(const Graph& graph);

/// One line a tensor and an operation:
///
///   tensor w : f32[4,3] parameter
///   function train
///   repeat 2
///   y = linear(x, w) bias=0
std::string to_text(const Graph& graph);

/// The inverse, with comments from # to the end of a line; checks syntax and names, not operators.
/// Errors: kUsage, with the line.
Result<Graph> parse_graph(std::string_view text);

std::string_view to_text(Role role);

}  // namespace poprun
