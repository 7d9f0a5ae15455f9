#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/units.h"
#include "replica/graph/types.h"

/// A job as data: tensors, and functions made of operations on them.
///
/// Operations run in the order listed. A tensor is written once, except by operations that name it as both input and
/// output: those update it in place. Some operations compute (replica/ops); the others belong to the machine
/// (replica/machine): host streams, exchanges between IPUs and replicas, initialisation of variables, calls.
namespace poprun {

/// The purpose of a tensor, for reports. The tensor's live range does not depend on it.
enum class Role : std::uint8_t {
  kActivation,
  kParameter,
  kOptimizerState,
  kBuffer,  ///< Saved with the parameters but not trained: running statistics.
  kGradient,
  kStream,
  kMetric,
  kConstant,  ///< Written before the first step, by the model or the host, and never changed.
};

/// The memory of an IPU that holds a tensor.
enum class Memory : std::uint8_t {
  kInProcessor,
  kStreaming,  ///< Off the chip. A tensor there is a remote buffer, `[entries, ...]`, whose entries
               ///< are copied to the chip and back (copy, stash, restore); nothing computes on it.
};

/// Location of a variable's value while the host runs no function.
struct Residence {
  static constexpr std::int64_t kWhole = -1;

  TensorId tensor;
  std::int64_t entry = kWhole;  ///< Entry, if the tensor is a remote buffer.

  friend bool operator==(const Residence&, const Residence&) = default;
};

struct Tensor {
  std::string name;  ///< Unique in the graph.
  TensorType type;
  Role role = Role::kActivation;
  bool keeps_f32 = false;  ///< Stays float32 in a half-precision job.
  std::uint32_t ipu = 0;   ///< Index, in the replica, of the IPU that holds it.
  /// The original, if this tensor is a copy: one on another IPU, for another stage, in a stash, or recomputed in the
  /// backward pass.
  std::optional<TensorId> copy_of = std::nullopt;
  Memory memory = Memory::kInProcessor;
  /// The type of the full tensor, if this tensor is a shard (one replica's part of it). A shard has one dimension.
  std::optional<TensorType> shard_of = std::nullopt;
  /// Set for a variable that functions load when they need it. Any other variable stays in this tensor.
  std::optional<Residence> residence = std::nullopt;

  [[nodiscard]] bool is_remote() const { return memory == Memory::kStreaming; }
};

/// The pass over the model, forward or backward, to which an operation of a micro-batch belongs.
enum class Direction : std::uint8_t {
  kForward,
  kRecomputed,  ///< A clone of a forward operation, in the backward pass.
  kBackward,
};

inline constexpr std::int32_t kNoLayer = -1;

/// The part of the model that an operation comes from. Gradients and clones inherit it.
struct Origin {
  std::int32_t layer = kNoLayer;  ///< Index into Graph::layers.
  std::uint32_t stage = 0;        ///< Pipeline stage.
  Direction direction = Direction::kForward;

  friend bool operator==(const Origin&, const Origin&) = default;
};

struct Operation {
  std::string kind;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  Attributes attributes;
  Origin origin = {};
};

/// A layer of the model. The model can be split between layers.
struct Layer {
  std::string name;  ///< Unique in the graph.
  /// True for blocks that people count ("24 layers") to split a model; false for others, such as embeddings and heads.
  bool counted = true;

  friend bool operator==(const Layer&, const Layer&) = default;
};

/// Operations that run `repeat` times in a row.
struct Region {
  std::int64_t repeat = 1;
  std::vector<Operation> operations;
};

/// A function that the host can run on a replica, or that other functions call.
struct Function {
  std::string name;
  std::vector<Region> regions;
};

/// `call() function="forward.0" micro_batch=3`: runs another function once. Within that function, the micro-batch index
/// is `micro_batch` plus the caller's index (0 if the host runs the caller) plus the round of the region that repeats
/// the call. `entry=5` adds 5, and the caller's entry, to the entries of remote buffers that the function's copies
/// name. The call reads and writes the tensors that the function reads and writes.
struct Call {
  static constexpr std::string_view kKind = "call";

  std::string function;
  std::int64_t micro_batch = 0;
  std::int64_t entry = 0;
  /// Names of the random numbers that the function's operations draw (folded into the random-number key). The
  /// operations refer to them by number: `salt0="encoder.7.dropout"`.
  std::vector<std::string> salts = {};

  [[nodiscard]] Operation operation() const;

  /// Returns the operation as a Call if it is a call with these attributes, and otherwise nothing.
  static std::optional<Call> from(const Operation& operation);
};

/// Prefix of the names of outlined functions.
inline constexpr std::string_view kOutlinedPrefix = "outlined.";

/// Indices of a region and its function. They stay valid, because functions and regions are only appended.
struct Place {
  std::size_t function = 0;
  std::size_t region = 0;
};

class Graph {
 public:
  /// Appends a function with one region per repeat count and returns the places of the regions.
  std::vector<Place> add_function(std::string name, const std::vector<std::int64_t>& repeats);

  [[nodiscard]] Region& at(Place place);
  [[nodiscard]] const Region& at(Place place) const;

  /// Returns the single region of function "load", where variables are initialised. Requires: it exists.
  [[nodiscard]] Place load() const;

  /// Reserves these names for the tensors of a model file.
  void reserve(const std::set<std::string>& names);
  void release(const std::string& name);
  [[nodiscard]] bool is_reserved(std::string_view name) const;
  [[nodiscard]] std::set<std::string> reserved() const;

  /// Returns `name`, or the first of name.1, name.2 ... that no tensor has and that is not reserved.
  [[nodiscard]] std::string free_name(const std::string& name) const;

  /// Adds a tensor, renamed by `free_name` if necessary, so that the compiler never uses a name of the model's tensors.
  TensorId add_tensor(Tensor tensor);

  /// Adds a tensor that keeps its name. Requires: no other tensor has that name.
  TensorId add_given(Tensor tensor);

  /// Returns the tensor with that name. Requires: `has(name)`.
  [[nodiscard]] TensorId find(std::string_view name) const;
  [[nodiscard]] bool has(std::string_view name) const;

  /// Returns whether the name of any tensor begins with `beginning`.
  [[nodiscard]] bool has_below(std::string_view beginning) const;

  [[nodiscard]] const Tensor& tensor(TensorId id) const { return tensors_.at(index_of(id)); }
  void swap_names(TensorId a, TensorId b);
  void set_role(TensorId id, Role role) { tensors_.at(index_of(id)).role = role; }
  void keep_f32(TensorId id) { tensors_.at(index_of(id)).keeps_f32 = true; }
  void set_data_type(TensorId id, DataType data) { tensors_.at(index_of(id)).type.data = data; }
  void set_ipu(TensorId id, std::uint32_t ipu) { tensors_.at(index_of(id)).ipu = ipu; }
  void set_memory(TensorId id, Memory memory) { tensors_.at(index_of(id)).memory = memory; }
  void set_residence(TensorId id, Residence where) { tensors_.at(index_of(id)).residence = where; }
  [[nodiscard]] const std::vector<Tensor>& tensors() const { return tensors_; }

  [[nodiscard]] Bytes bytes(const std::vector<TensorId>& ids) const;

  std::vector<Function> functions;
  std::vector<Layer> layers;  ///< In the order of the forward pass.

 private:
  std::vector<Tensor> tensors_;
  std::map<std::string, TensorId, std::less<>> by_name_;  ///< kReserved: a name without a tensor.
};

const Function* find_function(const Graph& graph, std::string_view name);

/// Returns the names of the functions that other functions call; the host runs the rest.
std::set<std::string> called_functions(const Graph& graph);

/// Checks that calls name other functions, that every tensor is written before it is read (in the same function, in one
/// called before, or in an earlier function), and that only one operation writes it. Exceptions to the latter: in-place
/// updates, operations without inputs, all-gathers, copies back from a copy, tensors written only by copies, remote
/// buffers, shards, tensors with a residence, and outlined functions' tensors and their copies. Errors: kBug.
Status verify_graph(const Graph& graph);

/// Prints one line per tensor and operation:
///
///   layer conv1                            an uncounted layer: `layer embeddings uncounted`
///   tensor w : f32[4,3] parameter ipu=1    with keeps_f32: `parameter keeps-f32`
///   tensor w@ipu0 : f32[4,3] activation copy-of=w
///   tensor m.shard : f32[3] optimizer-state shard-of=f32[4,3]
///   tensor v.remote : f32[8,4,3] optimizer-state streaming ipu=1
///   tensor v : f32[4,3] optimizer-state resides=v.remote:5
///   function train
///   repeat 2
///   @conv1:1:forward y = linear(x, w) bias=0
///
/// An operation's origin (its layer, which may be empty, its stage and its direction) is left out if it is the default,
/// and a tensor's IPU is left out if it is 0.
std::string to_text(const Graph& graph);

/// Parses the text of `to_text`, which begins at line `first_line` of its file. Comments from # to the end of a line
/// are allowed. Syntax and names are checked, but operators are not. Errors: kUsage, with the line.
Result<Graph> parse_graph(std::string_view text, int first_line = 1);

std::string_view to_text(Role role);

/// Returns whether `tensors` contains `id`.
bool names(const std::vector<TensorId>& tensors, TensorId id);

}  // namespace poprun
