#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/note.h"
#include "replica/graph/types.h"
#include "replica/models/onnx/constant.h"
#include "replica/models/onnx/learnt.h"
#include "replica/ops/builder/builder.h"

/// ONNX files as models (onnx.ai, opsets 1 to 28 of the default domain; OPERATORS.md lists the operators).
///
///   nodes/         translators: each file lowers one family of ONNX operators to our operators
///   node.h         the node and the builder that a translator works with
///   control.h      nodes with graphs inside: If, Loop, Scan
///   functions.h    a model's own functions, which are expanded before anything else
///   window.h       checks of known indices; windows of convolutions and poolings
///   learnt.h       the choice of the tensors to train
///   constant.h     values that are known at import, and shape arithmetic on them
///
/// Learnt tensors (learnt.h) become trained parameters under the file's names. Other constants become constants of the
/// Program. Integers, shapes and the results computed from them are known at import.
namespace poprun::onnx_import {

/// A graph input without a stored value.
struct GraphInput {
  std::string name;
  Element element = 0;
  Shape dims;                        ///< An open dimension is -1.
  std::vector<std::string> symbols;  ///< For each dimension: its name if it is open, else "".
  bool has_shape = false;
};

/// A parsed and checked file.
class OnnxModel {
 public:
  /// Parses and checks a file. Errors: kData if it is not an ONNX model, has no outputs, contains a name that is not
  /// UTF-8, or is refused by libonnx's checker; kUsage for an opset newer than kNewestOpset or for unsupported
  /// operators (the message lists the supported ones); and the errors of expand_functions.
  static Result<OnnxModel> parse(std::string_view bytes);

  [[nodiscard]] const std::vector<GraphInput>& inputs() const { return inputs_; }
  [[nodiscard]] const ::onnx::ModelProto& proto() const { return *proto_; }

  /// Returns the names of the file's stored and computed values, and the names that these would have as constants.
  [[nodiscard]] const std::set<std::string>& names() const { return names_; }

  /// Returns the prefix of the names of constants. No name in the file begins with it.
  [[nodiscard]] const std::string& constants() const { return constants_; }
  [[nodiscard]] std::int64_t opset() const { return opset_; }  ///< Opset of the default domain.

 private:
  std::shared_ptr<const ::onnx::ModelProto> proto_;
  std::vector<GraphInput> inputs_;
  std::set<std::string> names_;
  std::string constants_ = "constants/";
  std::int64_t opset_ = 0;
};

struct ImportOptions {
  std::vector<TensorId> inputs;  ///< In the order of OnnxModel::inputs.

  /// Known elements of inputs, by name. A node that needs a value at import, as Reshape needs its target shape, can
  /// read it here. The elements are used for nothing else.
  std::map<std::string, Constant> samples;
  bool training = false;  ///< If set, batch normalisation uses the batch's statistics, and dropout drops elements.
  /// Whether nodes that the file stores in training mode also run in that mode outside training, as test cases require.
  /// A job ignores the mode of the export.
  bool as_written = false;

  bool half = false;            ///< Whether to clamp finite constants to float16's range, for a job in half precision.
  std::string trained;          ///< ECMAScript regex for names of constants to train (learnt.h), or "".
  bool logits = false;          ///< Whether to remove the last Softmax, because the loss includes one.
  std::optional<Shape> labels;  ///< Shape of the labels, if any. It determines the axis of the classes.
};

struct ImportedOutput {
  std::string name;
  Element element = 0;
  TensorId tensor{};
};

struct Imported {
  std::vector<ImportedOutput> outputs;

  /// Initial values of the variables that the import created, by name. Null if the file does not contain the elements,
  /// which then come with the job's initial weights.
  std::map<std::string, std::shared_ptr<const Constant>> weights;
  std::vector<Note> notes;
  Surprises surprises;

  /// For each appended operation, the index of its node in GraphProto::node. The indices never decrease.
  std::vector<std::size_t> node_of_operation;
};

/// Appends the model. Errors, which name the node: kUsage if it is not supported, kData if the model contradicts
/// itself.
Result<Imported> import_model(Builder& builder, const OnnxModel& model, const ImportOptions& options);

std::vector<std::string> supported_operators();  ///< Sorted.

}  // namespace poprun::onnx_import
