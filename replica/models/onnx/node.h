#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <onnx/onnx_pb.h>

#include "replica/models/onnx/constant.h"
#include "replica/models/onnx/learnt.h"
#include "replica/ops/builder/builder.h"

/// The node and the builder that a translator of one ONNX operator works with.
namespace poprun::onnx_import {

/// A value of the ONNX graph: known at import, or computed on the device, or both.
///
/// On the device, real types are f32, integers i32 (uint8: u8), and bools f32 of 0 and 1.
struct Value {
  std::string name;
  Element element = ::onnx::TensorProto::FLOAT;
  std::shared_ptr<const Constant> constant;
  std::optional<TensorId> tensor;
  bool stored = false;  ///< An initialiser, or a weight in a Constant node.
  bool node = false;    ///< As a Constant node has it.
  Verdict verdict;      ///< Whether it is trained.
  bool sample = false;  ///< An input whose elements happen to be known; see ImportOptions.
};

/// The import's state: values by name, and what was made of them.
struct Scope {
  Builder* builder = nullptr;
  std::int64_t opset = 0;
  bool training = false;
  bool as_written = false;  ///< See ImportOptions, as for `half`.
  bool half = false;
  Storage storage;              ///< How the file stores weights.
  std::int64_t file_batch = 0;  ///< The batch size that the file was written for; 0: left open.
  std::int64_t batch = 0;       ///< That it is imported for.
  std::string constants;        ///< What the names of constants begin with.
  std::set<std::string> read;   ///< Values that a node takes or the model puts out.
  std::map<std::string, Value> values;
  std::map<std::string, std::shared_ptr<const Constant>> weights;  ///< By variable.
  std::vector<std::string> notes;
  Surprises surprises;

  /// Adds an operation; its outputs are called `name`, with something appended where that is taken.
  Result<std::vector<TensorId>> add(const std::string& name, const std::string& kind, std::vector<TensorId> inputs,
                                    Attributes attributes, std::size_t outputs);

  /// `name`, which the file gives, with a number appended where it is taken.
  [[nodiscard]] std::string free_name(const std::string& name) const;
};

enum class Use : std::uint8_t {
  kOperand,
  kWeight,  ///< Where models have what they learnt. Decides nothing but what is said about it.
  kBuffer,  ///< A running statistic, however it is stored.
};

/// One node. Errors of all functions: kUsage, what is not supported; kData, what is wrong.
class Node {
 public:
  Node(Scope& scope, const ::onnx::NodeProto& proto) : scope_(scope), proto_(proto) {}

  [[nodiscard]] const std::string& op() const { return proto_.op_type(); }
  [[nodiscard]] std::int64_t opset() const { return scope_.opset; }
  [[nodiscard]] Scope& scope() { return scope_; }
  [[nodiscard]] Builder& builder() { return *scope_.builder; }
  [[nodiscard]] const ::onnx::NodeProto& proto() const { return proto_; }

  /// Inputs that are listed, and whether input i is given. Requires has(i) for all that take an i.
  [[nodiscard]] std::size_t inputs() const { return static_cast<std::size_t>(proto_.input_size()); }
  [[nodiscard]] bool has(std::size_t i) const;
  [[nodiscard]] std::size_t outputs() const { return static_cast<std::size_t>(proto_.output_size()); }
  /// Whether output k is listed and anything reads it.
  [[nodiscard]] bool wants_output(std::size_t k) const;

  [[nodiscard]] const Value& value(std::size_t i) const;
  [[nodiscard]] Shape shape(std::size_t i) const;
  [[nodiscard]] Element element(std::size_t i) const { return value(i).element; }

  /// True where the result is to be computed at import: every input is known, none is a weight,
  /// and none is large.
  [[nodiscard]] bool folds() const;

  /// The elements of input i, known at import.
  Result<std::shared_ptr<const Constant>> constant(std::size_t i);
  Result<std::vector<std::int64_t>> integers_of(std::size_t i);
  Result<float> real_of(std::size_t i);  ///< Of an input of one element.

  /// Input i on the device: as it lies; row-major; channels-last, of rank 4; as a variable.
  Result<TensorId> tensor(std::size_t i) { return materialise(i, Use::kOperand); }
  Result<TensorId> row_major(std::size_t i);
  Result<TensorId> image(std::size_t i);
  Result<TensorId> weight(std::size_t i) { return materialise(i, Use::kWeight); }
  Result<TensorId> buffer(std::size_t i) { return materialise(i, Use::kBuffer); }

  /// Attributes, or the default where they are left out.
  [[nodiscard]] bool has_attribute(const std::string& name) const;
  [[nodiscard]] std::int64_t integer(const std::string& name, std::int64_t otherwise) const;
  [[nodiscard]] double real(const std::string& name, double otherwise) const;
  [[nodiscard]] std::string text(const std::string& name, const std::string& otherwise) const;
  [[nodiscard]] std::vector<std::int64_t> integers(const std::string& name) const;
  [[nodiscard]] std::vector<float> reals(const std::string& name) const;
  [[nodiscard]] const ::onnx::TensorProto* tensor_attribute(const std::string& name) const;
  [[nodiscard]] const ::onnx::GraphProto& graph_attribute(const std::string& name) const;

  /// An attribute of `count` sizes, each in [least, 2^31). All `otherwise` where left out.
  [[nodiscard]] Result<std::vector<std::int64_t>> sizes(const std::string& name, std::size_t count, std::int64_t least,
                                                        std::int64_t otherwise) const;

  /// Attribute or input `i` (ONNX moved several from the one to the other): a list of integers, or nothing if
  /// neither is there.
  Result<std::optional<std::vector<std::int64_t>>> integers_from(const std::string& attribute, std::size_t i);

  /// Adds an operation of ours.
  Result<TensorId> add(const std::string& kind, std::vector<TensorId> inputs, Attributes attributes = {});
  /// For operators that know real numbers only: 32-bit integers as float32 in any precision, exactly up to 2^24, and
  /// what was computed from them cut to integers again.
  Result<TensorId> to_reals(TensorId x);
  Result<TensorId> to_integers(TensorId y);

  /// Applies `compute` to x. If x holds integers, they are converted to reals, and the result back to integers.
  Result<TensorId> on_reals(TensorId x, const std::function<Result<TensorId>(TensorId)>& compute);

  /// `add`, around which integers become reals and the result becomes an integer.
  Result<TensorId> add_as_reals(const std::string& kind, std::vector<TensorId> inputs, Attributes attributes = {});
  Result<std::vector<TensorId>> add_many(const std::string& kind, std::vector<TensorId> inputs, Attributes attributes,
                                         std::size_t outputs);
  Result<TensorId> reshape(TensorId x, Shape shape, Layout layout = Layout::kRowMajor);
  Result<TensorId> row_major_of(TensorId x);
  Result<TensorId> transpose(TensorId x, std::vector<std::int64_t> perm);

  /// Names for the operations of one of our layers that computes this node's output.
  [[nodiscard]] std::string free_name() const { return scope_.free_name(proto_.output(0)); }

  /// A tensor of equal reals.
  Result<TensorId> fill(Shape shape, double value);

  /// A constant of this node's own making, as a device tensor.
  Result<TensorId> device_constant(Constant constant, const std::string& suffix);

  /// A copy: operations that are added move the graph's tensors.
  [[nodiscard]] TensorType type(TensorId id) { return builder().type(id); }

  /// Output k is this.
  void set(std::size_t k, TensorId tensor, Element element = ::onnx::TensorProto::FLOAT);
  void set(std::size_t k, Constant constant);
  /// Output 0, of a Constant, is this.
  void set_written(Constant constant);
  /// Output 0 has the value of input 0, a weight, as one of its own.
  void copy_weight();
  /// Output k is input i itself, or the value of that name.
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

/// `axis` counted from 0 for a tensor of `rank` dimensions. Errors: kData if there is no such axis.
Result<std::size_t> normal_axis(std::int64_t axis, std::size_t rank);

/// How an ONNX operator becomes ours.
struct Translator {
  std::string op;
  std::size_t inputs = 1;  ///< At least so many are given, or the node is wrong.
  Status (*translate)(Node& node) = nullptr;
};

/// Every translator, sorted by operator.
const std::vector<Translator>& all_translators();

/// The translator of that operator, or null.
const Translator* find_translator(const std::string& op);

}  // namespace poprun::onnx_import
