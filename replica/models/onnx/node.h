#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <onnx/onnx_pb.h>

#include "replica/base/note.h"
#include "replica/models/onnx/constant.h"
#include "replica/models/onnx/learnt.h"
#include "replica/ops/builder/builder.h"

/// The node and the builder that a translator of one ONNX operator works with.
namespace poprun::onnx_import {

/// A value of the ONNX graph that is known at import, on the device, or both. On the device, reals are f32, integers
/// i32 (but uint8 is u8), and bools are f32 with the values 0 and 1.
struct Value {
  std::string name = {};
  Element element = ::onnx::TensorProto::FLOAT;
  std::shared_ptr<const Constant> constant = nullptr;
  std::optional<TensorId> tensor = {};
  bool stored = false;   ///< Whether it is an initialiser, or a weight in a Constant node.
  bool node = false;     ///< Whether it comes from a Constant node.
  Verdict verdict = {};  ///< Whether it is trained.
  bool sample = false;   ///< Whether it is an input with known elements (ImportOptions::samples).
  /// For integers that a quantisation made: the same numbers as f32, through which the gradient passes. `tensor` is
  /// then made when an operator first needs integers.
  std::optional<TensorId> through = {};
  std::shared_ptr<const std::vector<Value>> sequence = nullptr;  ///< The elements, if it is a sequence of tensors.
};

/// The state of an import.
struct Scope {
  Builder* builder = nullptr;
  std::int64_t opset = 0;
  bool training = false;
  bool as_written = false;  ///< This field and `half` are as in ImportOptions.
  bool half = false;
  Storage storage;              ///< How the file stores weights.
  std::int64_t file_batch = 0;  ///< Batch size that the file was written for, or 0 if left open.
  std::int64_t batch = 0;       ///< Batch size of the import.
  std::string constants;        ///< Prefix of the names of constants.
  std::string step = {};        ///< Distinguishes the steps of an unrolled loop; empty outside loops.
  std::set<std::string> read;   ///< Values that a node reads or that the model outputs.
  std::map<std::string, Value> values;
  std::map<std::string, std::shared_ptr<const Constant>> weights;  ///< As in Imported.
  std::vector<Note> notes;
  Surprises surprises;

  /// Adds an operation. Its first output is called `name`, with a suffix if that name is taken.
  Result<std::vector<TensorId>> add(const std::string& name, const std::string& kind, std::vector<TensorId> inputs,
                                    Attributes attributes, std::size_t outputs);

  /// Returns the variable of this name, which comes from the file, and adds it unless another function of the job has
  /// added it. Errors: kUsage for a tensor without elements, kData if the name belongs to another tensor.
  Result<TensorId> variable(const std::string& name, Element element, const Shape& shape, Role role);

  /// Returns `name`, which comes from the file, with a number appended if it is taken.
  [[nodiscard]] std::string free_name(const std::string& name) const;
};

enum class Use : std::uint8_t {
  kOperand,
  kWeight,  ///< An operand that is usually learnt. This affects only the notes.
  kBuffer,  ///< A running statistic, however it is stored.
};

/// One node. Errors of all functions: kUsage if something is not supported, kData if the model is wrong.
class Node {
 public:
  Node(Scope& scope, const ::onnx::NodeProto& proto) : scope_(scope), proto_(proto) {}

  [[nodiscard]] const std::string& op() const { return proto_.op_type(); }
  [[nodiscard]] std::int64_t opset() const { return scope_.opset; }
  [[nodiscard]] Scope& scope() { return scope_; }
  [[nodiscard]] Builder& builder() { return *scope_.builder; }
  [[nodiscard]] const ::onnx::NodeProto& proto() const { return proto_; }

  /// Return the number of listed inputs, and whether input i is given. Functions that take an index i require has(i).
  [[nodiscard]] std::size_t inputs() const { return static_cast<std::size_t>(proto_.input_size()); }
  [[nodiscard]] bool has(std::size_t i) const;
  [[nodiscard]] std::size_t outputs() const { return static_cast<std::size_t>(proto_.output_size()); }
  /// Returns the name of the first output that is not left out. Requires that there is one.
  [[nodiscard]] const std::string& label() const {
    return *std::ranges::find_if_not(proto_.output(), &std::string::empty);
  }
  /// Returns whether output k is listed and anything reads it.
  [[nodiscard]] bool wants_output(std::size_t k) const;

  [[nodiscard]] const Value& value(std::size_t i) const;
  [[nodiscard]] Shape shape(std::size_t i) const;
  [[nodiscard]] Element element(std::size_t i) const { return value(i).element; }

  /// Returns whether to compute the result at import: all inputs must be known, and none may be a weight or too large.
  [[nodiscard]] bool folds() const;

  /// Return the elements of input i. Errors: kUsage if they are not known at import.
  Result<std::shared_ptr<const Constant>> constant(std::size_t i);
  Result<std::vector<std::int64_t>> integers_of(std::size_t i);
  Result<float> real_of(std::size_t i);  ///< Requires an input with one element.

  /// Return input i on the device: in its own layout, row-major, channels-last (rank 4), as a weight, or as a buffer.
  Result<TensorId> tensor(std::size_t i) { return materialise(i, Use::kOperand); }
  Result<TensorId> row_major(std::size_t i);
  Result<TensorId> image(std::size_t i);
  Result<TensorId> weight(std::size_t i) { return materialise(i, Use::kWeight); }
  Result<TensorId> buffer(std::size_t i) { return materialise(i, Use::kBuffer); }

  /// Returns a value that need not be an input on the device, row-major.
  Result<TensorId> on_device(const Value& value);

  /// Returns integers (input i) as reals. If a quantisation made them, the gradient passes to what was quantised.
  Result<TensorId> reals_of(std::size_t i);
  /// Makes input i a constant, for this reason, even if it is stored like a weight, unless the user wants it trained.
  void keep_constant(std::size_t i, const std::string& reason);

  /// Return whether an attribute is present, or its value, or the default if it is absent.
  [[nodiscard]] bool has_attribute(const std::string& name) const;
  [[nodiscard]] std::int64_t integer(const std::string& name, std::int64_t otherwise) const;
  [[nodiscard]] double real(const std::string& name, double otherwise) const;
  [[nodiscard]] std::string text(const std::string& name, const std::string& otherwise) const;
  [[nodiscard]] std::vector<std::int64_t> integers(const std::string& name) const;
  [[nodiscard]] std::vector<float> reals(const std::string& name) const;
  [[nodiscard]] const ::onnx::TensorProto* tensor_attribute(const std::string& name) const;
  [[nodiscard]] const ::onnx::GraphProto& graph_attribute(const std::string& name) const;

  /// Returns an attribute of `count` sizes, each in [least, 2^31); all are `otherwise` if the attribute is left out.
  [[nodiscard]] Result<std::vector<std::int64_t>> sizes(const std::string& name, std::size_t count, std::int64_t least,
                                                        std::int64_t otherwise) const;

  /// Returns the integers in the attribute or in input `i`, if any. Later opsets turned some attributes into inputs.
  Result<std::optional<std::vector<std::int64_t>>> integers_from(const std::string& attribute, std::size_t i);

  Result<TensorId> add(const std::string& kind, std::vector<TensorId> inputs, Attributes attributes = {});
  /// Convert the operands and results of operators that take only reals. In every precision, 32-bit integers become
  /// float32, which is exact up to 2^24. Results are truncated to integers.
  Result<TensorId> to_reals(TensorId x);
  Result<TensorId> to_integers(TensorId y);

  /// Applies `compute` to x. If x holds integers, converts them to reals and the result back to integers.
  Result<TensorId> on_reals(TensorId x, const std::function<Result<TensorId>(TensorId)>& compute);

  /// Adds an operation. Converts integer inputs to reals and, if there are any, the result back to integers.
  Result<TensorId> add_as_reals(const std::string& kind, std::vector<TensorId> inputs, Attributes attributes = {});
  Result<std::vector<TensorId>> add_many(const std::string& kind, std::vector<TensorId> inputs, Attributes attributes,
                                         std::size_t outputs);
  Result<TensorId> reshape(TensorId x, Shape shape, Layout layout = Layout::kRowMajor);
  Result<TensorId> row_major_of(TensorId x);
  Result<TensorId> transpose(TensorId x, std::vector<std::int64_t> perm);
  Result<TensorId> slice(TensorId x, std::int64_t axis, std::int64_t begin, std::int64_t count, std::int64_t step = 1) {
    return add("slice", {x}, {{"axis", axis}, {"begin", begin}, {"count", count}, {"step", step}});
  }
  Result<TensorId> matmul(TensorId a, TensorId b, bool transpose_b = false) {
    return add("matmul", {a, b},
               {{"transpose_a", std::int64_t{0}}, {"transpose_b", std::int64_t{transpose_b ? 1 : 0}}});
  }
  Result<TensorId> expand(TensorId x, const Shape& shape);  ///< Broadcasts x, row-major.

  /// Returns the node's name for what differs in each step of a loop, such as random numbers.
  [[nodiscard]] std::string step_name() const { return label() + scope_.step; }

  /// Returns a name for one of our layers that computes this node's output.
  [[nodiscard]] std::string free_name() const { return scope_.free_name(step_name()); }

  Result<TensorId> fill(Shape shape, double value);

  /// Adds, as a device tensor, a constant that the translator made for this node.
  Result<TensorId> device_constant(Constant constant, const std::string& suffix);

  /// Returns a copy of a tensor's type, since adding operations moves the graph's tensors.
  [[nodiscard]] TensorType type(TensorId id) { return builder().type(id); }

  void set(std::size_t k, TensorId tensor, Element element = ::onnx::TensorProto::FLOAT);
  void set(std::size_t k, Constant constant);
  void set(std::size_t k, Value value);
  /// Sets output k to the integers that `through`, f32, holds; see Value::through.
  void set_quantised(std::size_t k, TensorId through, Element element);
  /// Sets output 0 or, if `tensor` holds an error, returns that error.
  Status set_result(const Result<TensorId>& tensor, Element element = ::onnx::TensorProto::FLOAT) {
    return tensor.map([&](TensorId y) { set(0, y, element); });
  }
  /// Sets output 0 of a Constant node.
  void set_written(Constant constant);
  /// Makes output 0 a separate copy of input 0, a weight.
  void copy_weight();
  /// Make output k the same value as input i, or as the value called `name`.
  void pass(std::size_t k, std::size_t i);
  Status take(std::size_t k, const std::string& name);

  [[nodiscard]] tl::unexpected<Error> unsupported(const std::string& what) const;
  [[nodiscard]] tl::unexpected<Error> wrong(const std::string& what) const;

 private:
  Result<TensorId> materialise(std::size_t i, Use use);
  Result<TensorId> constant_tensor(Value v);
  void record(const Value& v, Use use);
  Result<TensorId> variable(const std::string& name, const Value& value, Role role);
  [[nodiscard]] const ::onnx::AttributeProto* attribute(const std::string& name) const;

  Scope& scope_;
  const ::onnx::NodeProto& proto_;
};

/// Converts a possibly negative axis of a tensor of rank `rank` to one from 0. Errors: kData if it is out of range.
Result<std::size_t> normal_axis(std::int64_t axis, std::size_t rank);

/// Lowers an ONNX operator to our operators.
struct Translator {
  std::string op;
  std::size_t inputs = 1;  ///< Number of required inputs. A node with fewer is invalid.
  Status (*translate)(Node& node) = nullptr;
};

/// Return all translators, sorted by operator, and the translator of one operator, or null if there is none.
const std::vector<Translator>& all_translators();
const Translator* find_translator(const std::string& op);

}  // namespace poprun::onnx_import
