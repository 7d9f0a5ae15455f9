#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/graph/types.h"
#include "replica/models/onnx/constant.h"
#include "replica/models/onnx/learnt.h"
#include "replica/ops/builder/builder.h"

/// ONNX files as models (onnx.ai, opsets 1 to 17 of the default domain).
///
///   nodes/         translators: one file a family of ONNX operators, each lowered to ours
///   node.h         what a translator works with
///   functions.h    a model's own functions, expanded before anything else
///   indices.h      indices that are known are checked
///   learnt.h       which tensors are trained
///   fold.h         shape arithmetic, computed while importing
///   constant.h     values that are known while importing
///
/// Learnt tensors become parameters under the file's names and are trained, see learnt.h; other constants are part
/// of the Program's constants. Integers, shapes and what is computed from them are known at import.
namespace poprun::onnx_import {

inline constexpr std::int64_t kNewestOpset = 17;

/// An input that has no stored value.
struct GraphInput {
  std::string name;
  Element element = 0;
  Shape dims;                        ///< -1 where left open.
  std::vector<std::string> symbols;  ///< By dimension, what an open one is called, or "".
  bool has_shape = false;
};

/// A parsed and checked file.
class OnnxModel {
 public:
  /// Errors: kData, no ONNX model, one that the checker of libonnx refuses, or one without outputs; kUsage, an opset
  /// newer than kNewestOpset, or operators that are not supported, with those that are; those of expand_functions;
  /// kData, a name that is not UTF-8.
  static Result<OnnxModel> parse(std::string_view bytes);

  [[nodiscard]] const std::vector<GraphInput>& inputs() const { return inputs_; }
  [[nodiscard]] const ::onnx::ModelProto& proto() const { return *proto_; }

  /// The file's names of the values that are stored in it or that nodes compute, and the names of those that become
  /// constants.
  [[nodiscard]] const std::set<std::string>& names() const { return names_; }

  /// Prefix of the names of constants, which no name in the file has.
  [[nodiscard]] const std::string& constants() const { return constants_; }
  [[nodiscard]] std::int64_t opset() const { return opset_; }  ///< Of the default domain.

 private:
  std::shared_ptr<const ::onnx::ModelProto> proto_;
  std::vector<GraphInput> inputs_;
  std::set<std::string> names_;
  std::string constants_ = "constants/";
  std::int64_t opset_ = 0;
};

struct ImportOptions {
  std::vector<TensorId> inputs;  ///< In the order of OnnxModel::inputs.

  /// Elements of inputs that are known, by name: what a node must know at import, as Reshape its shape, it may then
  /// take from there. Nothing else is computed from them.
  std::map<std::string, Constant> samples;

  /// Batch normalisation with the statistics of the batch, dropout drops.
  bool training = false;

  /// Nodes that the file has in training mode run in it outside of training too, as a test case wants them. A job
  /// trains and evaluates whatever mode its file was exported in.
  bool as_written = false;

  /// Constants beyond float16's range become its largest number, for a job in half precision.
  bool half = false;

  /// Names of constants to train (ECMAScript), see learnt.h; empty: none.
  std::string trained;

  /// The first output before a last Softmax, which a cross-entropy loss brings itself.
  bool logits = false;
  std::optional<Shape> labels;  ///< Their shape, if there are any: says which axis the classes are.
};

struct ImportedOutput {
  std::string name;
  Element element = 0;
  TensorId tensor{};
};

struct Imported {
  std::vector<ImportedOutput> outputs;

  /// First values of the variables that the import made, by name. Shared with the model's values.
  std::map<std::string, std::shared_ptr<const Constant>> weights;
  std::vector<std::string> notes;
  Surprises surprises;

  /// By operation that the import appended, the node it comes from: an index into GraphProto::node, which never falls.
  std::vector<std::size_t> node_of_operation;
};

/// Appends the model to `builder`. Errors: kUsage, something that is not supported; kData, a model that contradicts
/// itself. Both name the node.
Result<Imported> import_model(Builder& builder, const OnnxModel& model, const ImportOptions& options);

/// Supported ONNX operators, sorted.
std::vector<std::string> supported_operators();

}  // namespace poprun::onnx_import
