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
#include "replica/graph/attributes.h"
#include "replica/graph/types.h"

/// A job as data: tensors, and functions made of operations on them.
///
/// Operations run in the order listed. A tensor is written once, except by operations that name it as both input and
/// output: those update it in place. Some operations compute (replica/ops), others are the machine's (replica/machine):
/// host streams, exchanges between IPUs and replicas, initialisation of variables, calls.
namespace poprun {

/// The purpose of a tensor, for reports. Its live range does not depend on it.
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

/// The memory of an IPU in which a tensor lies.
enum class Memory : std::uint8_t {
  kInProcessor,
  kStreaming,  ///< Off the chip. A tensor there is a remote buffer, `[entries, ...]`, whose entries
               ///< are copied to the chip and back (copy, stash, restore); nothing computes on it.
};

/// Where the value of a variable is while no function of the host runs.
struct Residence {
  static constexpr std::int64_t kWhole = -1;

  TensorId tensor;
  std::int64_t entry = kWhole;  ///< Which one, if that is a remote buffer.

  friend bool operator==(const Residence&, const Residence&) = default;
};

struct Tensor {
  std::string name;  ///< Unique in the graph.
  TensorType type;
  Role role = Role::kActivation;
  bool keeps_f32 = false;  ///< Stays float32 in a half precision job.
  std::uint32_t ipu = 0;   ///< Its home: the IPU of the replica in whose memory it lies.
  /// The tensor whose values it holds once more: on another IPU, for another stage, in a stash, or computed again on
  /// the way back.
  std::optional<TensorId> copy_of = std::nullopt;
  Memory memory = Memory::kInProcessor;
  /// If it is a shard, each replica's part of a tensor: the type of that. A shard has one dimension.
  std::optional<TensorType> shard_of = std::nullopt;
  /// If it is a variable that functions load when they need it; nothing: it stays where it is.
  std::optional<Residence> residence = std::nullopt;

  [[nodiscard]] bool is_remote() const { return memory == Memory::kStreaming; }
};

/// The direction to which an operation of a micro-batch belongs.
enum class Direction : std::uint8_t {
  kForward,
  kRecomputed,  ///< A clone of a forward operation, on the way back.
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

/// A layer of the model, a place where it can be cut.
struct Layer {
  std::string name;  ///< Unique in the graph.
  /// True for the blocks that people count when they spread a model ("24 layers"); false for what is before and behind
  /// them, such as embeddings and heads.
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

/// `call() function="forward.0" micro_batch=3`: runs another function once. Within it, operations that ask for the
/// micro-batch index get `micro_batch` plus that of the caller, which a function of the host does not have, plus the
/// round of the region that repeats the call. With `entry=5`, the entries of remote buffers that its copies name count
/// from 5 on, plus those of the caller. It reads and writes what the function does.
struct Call {
  static constexpr std::string_view kKind = "call";

  std::string function;
  std::int64_t micro_batch = 0;
  std::int64_t entry = 0;
  /// Names of the random numbers that the function's operations draw, by the numbers with which these ask for them:
  /// `salt0="encoder.7.dropout"`.
  std::vector<std::string> salts = {};

  [[nodiscard]] Operation operation() const;

  /// The operation as a Call, if it is one and has these attributes.
  static std::optional<Call> from(const Operation& operation);
};

/// Prefix of the names of outlined functions.
inline constexpr std::string_view kOutlinedPrefix = "outlined.";

/// A region of a function. Stays valid, since functions and regions are only ever appended.
struct Place {
  std::size_t function = 0;
  std::size_t region = 0;
};

class Graph {
 public:
  /// Appends a function with one region per repeat count; returns their places.
  std::vector<Place> add_function(std::string name, const std::vector<std::int64_t>& repeats);

  [[nodiscard]] Region& at(Place place);
  [[nodiscard]] const Region& at(Place place) const;

  /// Where variables are initialised: the single region of function "load". Requires: it exists.
  [[nodiscard]] Place load() const;

  /// Keeps these names for the tensors that a model's file calls so.
  void reserve(const std::set<std::string>& names);
  void release(const std::string& name);
  [[nodiscard]] bool is_reserved(std::string_view name) const;

  /// `name`, or the first of name.1, name.2 ... that no tensor has and that is not reserved.
  [[nodiscard]] std::string free_name(const std::string& name) const;

  /// Its name gives way to those that are given: it becomes `free_name`. So whatever the compiler adds, and calls what
  /// it likes, leaves the names of the model alone.
  TensorId add_tensor(Tensor tensor);

  /// A tensor whose name was given and stays. Requires: no other tensor has that name.
  TensorId add_given(Tensor tensor);

  /// The tensor with that name. Requires: `has(name)`.
  [[nodiscard]] TensorId find(std::string_view name) const;
  [[nodiscard]] bool has(std::string_view name) const;

  /// True if some tensor's name begins with `beginning`.
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

  /// The total size of the tensors.
  [[nodiscard]] Bytes bytes(const std::vector<TensorId>& ids) const;

  std::vector<Function> functions;
  std::vector<Layer> layers;  ///< In the order of the forward pass.

 private:
  std::vector<Tensor> tensors_;
  std::map<std::string, TensorId, std::less<>> by_name_;  ///< kReserved: one that no tensor has.
};

/// The function with that name, or null.
const Function* find_function(const Graph& graph, std::string_view name);

/// The names of the functions that others call; the host runs the rest.
std::set<std::string> called_functions(const Graph& graph);

/// Checks what every pass may rely on: names and ids in range, every tensor written before it is read (in its function,
/// in one that is called before, or in an earlier one), written by one operation only, unless others update it in
/// place, or are copies of copies of it, all are copies, or it is a remote buffer, a shard or what resides in one, or
/// belongs to an outlined function. Errors: kBug, names function, operation and tensor.
Status verify_graph(const Graph& graph);

/// One line per tensor and operation:
///
///   layer conv1                            one that is not counted: `layer embeddings uncounted`
///   tensor w : f32[4,3] parameter ipu=1    with keeps_f32: `parameter keeps-f32`
///   tensor w@ipu0 : f32[4,3] activation copy-of=w
///   tensor m.shard : f32[3] optimizer-state shard-of=f32[4,3]
///   tensor v.remote : f32[8,4,3] optimizer-state streaming ipu=1
///   tensor v : f32[4,3] optimizer-state resides=v.remote:5
///   function train
///   repeat 2
///   @conv1:1:forward y = linear(x, w) bias=0
///
/// An operation's origin (layer, which may be empty, stage, direction) is left out where it is `{}`, and a tensor's IPU
/// where it is 0.
std::string to_text(const Graph& graph);

/// The inverse. Allows comments from # to the end of a line; checks syntax and names, not operators.
/// Errors: kUsage, with the line.
Result<Graph> parse_graph(std::string_view text);

std::string_view to_text(Role role);

/// Whether `tensors` names that one.
bool names(const std::vector<TensorId>& tensors, TensorId id);

}  // namespace poprun
