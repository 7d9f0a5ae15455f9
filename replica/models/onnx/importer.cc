#include "replica/models/onnx/importer.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/stubs/common.h>

#include "replica/base/text.h"
#include "replica/models/onnx/control.h"
#include "replica/models/onnx/functions.h"
#include "replica/models/onnx/last_softmax.h"
#include "replica/models/onnx/node.h"
#include "replica/models/onnx/schemas.h"
#include "replica/models/onnx/sequence.h"

namespace poprun::onnx_import {
namespace {

using ::onnx::GraphProto, ::onnx::ModelProto, ::onnx::NodeProto;

/// Replaces control characters with '?', since names from the file can contain anything.
Error on_one_line(Error error) {
  std::ranges::replace_if(
      error.message, [](unsigned char c) { return c < 0x20 || c == 0x7F; }, '?');
  return error;
}

std::string where(const NodeProto& node) {
  const std::string& name = node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
  return fmt::format("{} '{}'", node.op_type(), name);
}

bool is_default_domain(const std::string& domain) {
  return domain.empty() || domain == "ai.onnx";
}

Result<std::int64_t> opset_of(const ModelProto& model) {
  std::int64_t opset = 0;
  for (const auto& import : model.opset_import()) {
    if (is_default_domain(import.domain())) {
      opset = std::max(opset, import.version());
    }
  }
  if (opset > kNewestOpset) {
    return fail(ErrorCode::kUsage, fmt::format("opset {} is newer than {}, the newest supported; export the model "
                                               "with that opset: torch.onnx.export(..., opset_version={})",
                                               opset, kNewestOpset, kNewestOpset));
  }
  return opset;
}

/// Operators that the importer itself translates.
constexpr std::array kOwn = {"Constant", "If", "Loop", "Scan"};

Status check_operators(const GraphProto& graph) {
  std::set<std::string> missing;
  for (const NodeProto& node : graph.node()) {
    if (!is_default_domain(node.domain())) {
      missing.insert(node.domain() + "." + node.op_type());
    } else if (std::ranges::find(kOwn, node.op_type()) == kOwn.end() && find_translator(node.op_type()) == nullptr) {
      missing.insert(node.op_type());
    }
  }
  if (!missing.empty()) {
    return fail(ErrorCode::kUsage, fmt::format("operators that are not supported: {}; available: {}",
                                               fmt::join(missing, ", "), fmt::join(supported_operators(), ", ")));
  }
  return {};
}

std::vector<GraphInput> inputs_of(const GraphProto& graph) {
  std::set<std::string> stored;
  for (const auto& tensor : graph.initializer()) {
    stored.insert(tensor.name());
  }
  std::vector<GraphInput> inputs;
  for (const auto& info : graph.input()) {
    if (stored.contains(info.name())) {
      continue;
    }
    GraphInput input{.name = info.name(),
                     .element = info.type().tensor_type().elem_type(),
                     .dims = {},
                     .symbols = {},
                     .has_shape = info.type().tensor_type().has_shape()};
    for (const auto& d : info.type().tensor_type().shape().dim()) {
      input.dims.push_back(d.has_dim_value() ? d.dim_value() : -1);
      input.symbols.push_back(d.has_dim_value() ? "" : d.dim_param());
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

/// Returns the node's `value` or `value_*` attribute as a constant.
Result<Constant> constant_of(const Node& node) {
  if (const auto* tensor = node.tensor_attribute("value"); tensor != nullptr) {
    return read_tensor(*tensor);
  }
  if (node.has_attribute("value_float")) {
    return Constant::of_reals({static_cast<float>(node.real("value_float", 0))}, {});
  }
  if (node.has_attribute("value_int")) {
    return Constant::of_integers({node.integer("value_int", 0)}, {});
  }
  if (node.has_attribute("value_floats")) {
    auto values = node.reals("value_floats");
    const auto n = static_cast<std::int64_t>(values.size());
    return Constant::of_reals(std::move(values), {n});
  }
  if (node.has_attribute("value_ints")) {
    auto values = node.integers("value_ints");
    const auto n = static_cast<std::int64_t>(values.size());
    return Constant::of_integers(std::move(values), {n});
  }
  return node.unsupported("a constant that is sparse or contains strings");
}

/// Returns the values that nodes read, and the graph's outputs.
std::set<std::string> values_read(const GraphProto& graph) {
  std::set<std::string> read;
  for (const NodeProto& node : graph.node()) {
    read.insert(node.input().begin(), node.input().end());
    for (const auto& attribute : node.attribute()) {
      read.merge(values_read(attribute.g()));
    }
  }
  for (const auto& output : graph.output()) {
    read.insert(output.name());
  }
  read.erase("");  // The name of an omitted input.
  return read;
}

void add_tensor_names(const GraphProto& graph, std::set<std::string>& names) {
  for (const auto& tensor : graph.initializer()) {
    names.insert(tensor.name());
  }
  for (const NodeProto& node : graph.node()) {
    names.insert(node.output().begin(), node.output().end());
    for (const auto& attribute : node.attribute()) {
      add_tensor_names(attribute.g(), names);
    }
  }
}

bool some_begins_with(const std::set<std::string>& names, const std::string& beginning) {
  const auto next = names.lower_bound(beginning);
  return next != names.end() && next->starts_with(beginning);
}

std::string printable(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < 0x20 || c >= 0x7F; }, '?');
  return text;
}

/// Checks that names are UTF-8, as messages between processes must be. Errors: kData.
Status check_names(const ModelProto& model) {
  const GraphProto& graph = model.graph();
  std::set<std::string> names;
  add_tensor_names(graph, names);
  for (const auto& input : graph.input()) {
    names.insert(input.name());
  }
  for (const NodeProto& node : graph.node()) {
    names.insert(node.name());
  }
  for (const std::string& name : names) {
    if (!google::protobuf::internal::IsStructurallyValidUTF8(name)) {
      return fail(ErrorCode::kData, fmt::format("the name '{}' is not UTF-8; rename it", printable(name)));
    }
  }
  return {};
}

Status translate(Node& node) {
  if (std::ranges::all_of(node.proto().output(), &std::string::empty)) {
    return node.unsupported("a node without outputs");
  }
  for (std::size_t i = 0; i < node.inputs(); ++i) {
    if (node.has(i) && !node.scope().values.contains(node.proto().input(static_cast<int>(i)))) {
      return node.wrong(
          fmt::format("'{}' is not produced by any earlier node", node.proto().input(static_cast<int>(i))));
    }
  }
  if (!takes_sequences(node.op())) {
    for (std::size_t i = 0; i < node.inputs(); ++i) {
      if (node.has(i) && node.value(i).sequence != nullptr) {
        return node.unsupported("a sequence as an input");
      }
    }
  }
  if (node.op() == "Constant") {
    POPRUN_ASSIGN(Constant constant, constant_of(node));
    node.set_written(std::move(constant));
    return {};
  }
  const Translator* translator = find_control(node.op());
  translator = translator == nullptr ? find_translator(node.op()) : translator;
  if (translator == nullptr) {
    return node.unsupported("an unknown operator");
  }
  for (std::size_t i = 0; i < translator->inputs; ++i) {
    if (!node.has(i)) {
      return node.wrong(fmt::format("needs at least {} inputs", translator->inputs));
    }
  }
  return translator->translate(node);
}

Status add_inputs(const OnnxModel& model, const ImportOptions& options, Scope& scope) {
  for (const auto& tensor : model.proto().graph().initializer()) {
    POPRUN_TRY(add_stored(tensor, scope));
  }
  POPRUN_CHECK(options.inputs.size() == model.inputs().size());
  for (std::size_t i = 0; i < options.inputs.size(); ++i) {
    const GraphInput& input = model.inputs()[i];
    Value value;
    value.name = input.name;
    value.element = input.element;
    value.tensor = options.inputs[i];
    if (const auto sample = options.samples.find(input.name); sample != options.samples.end()) {
      value.constant = std::make_shared<const Constant>(sample->second);
      value.sample = true;
    }
    scope.values[input.name] = std::move(value);
  }
  if (!model.inputs().empty() && !model.inputs()[0].dims.empty() &&
      !scope.builder->type(options.inputs[0]).shape.empty()) {
    scope.file_batch = std::max<std::int64_t>(model.inputs()[0].dims[0], 0);
    scope.batch = scope.builder->type(options.inputs[0]).shape[0];
  }
  return {};
}

/// Checks that `trained` matches a real initialiser or a Constant node of the file. Errors: kUsage.
Status check_trained(const GraphProto& graph, const Storage& storage, const std::string& trained) {
  if (trained.empty()) {
    return {};
  }
  std::vector<std::string> constants;
  for (const auto& tensor : graph.initializer()) {
    if (is_real(tensor.data_type())) {
      constants.push_back(tensor.name());
    }
  }
  for (const NodeProto& node : graph.node()) {
    if (node.op_type() == "Constant") {
      constants.push_back(node.output(0));
    }
  }
  if (std::ranges::any_of(constants, [&](const auto& name) { return storage.forces(name); })) {
    return {};
  }
  return fail(ErrorCode::kUsage,
              fmt::format("model.trained-constants = {} matches none of the file's constants{}", trained,
                          constants.empty() ? "" : fmt::format(", such as '{}'", constants[0])));
}

/// Replaces the last Softmax with its input. Returns false if the Softmax must be kept.
bool leave_out(Scope& scope, const LastSoftmax& last, const ImportOptions& options,
               const ::onnx::ValueInfoProto& output) {
  const NodeProto& proto = *last.node;
  Node node(scope, proto);
  if (!node.has(0) || !scope.values.contains(proto.input(0)) || node.value(0).sequence != nullptr) {
    return false;  // Importing the node will report the error.
  }
  const bool joined = scope.opset < 13;
  if (const auto reason = reason_to_keep(last, node.shape(0), joined, options.labels, output)) {
    scope.notes.push_back(
        {"onnx.softmax-kept",
         fmt::format("the last {} is kept because {}; the loss treats its output as logits, so softmax is "
                     "applied twice; export the model without it",
                     where(proto), *reason)});
    return false;
  }
  node.pass(0, 0);
  scope.notes.push_back(
      {"onnx.softmax-left-out", fmt::format("the last {} is removed: the loss uses its input instead", where(proto))});
  return true;
}

/// Adds a remedy to the error if the file was written for a different batch size, which is then the likely cause.
Error with_batch_of_file(const Scope& scope, Error error) {
  if (scope.file_batch > 0 && scope.file_batch != scope.batch &&
      error.message.find("not supported") == std::string::npos) {
    error.message += fmt::format(
        "; the file was written for batches of {}, but the job has batches of {}: set data.micro-batch-size = "
        "{}, or export the model with a dynamic axis for the batch",
        scope.file_batch, scope.batch, scope.file_batch);
  }
  return error;
}

/// Adds the outputs as row-major device tensors, with their ONNX element types.
Status take_outputs(const GraphProto& graph, Scope& scope, Imported& imported) {
  NodeProto reader;
  for (const auto& output : graph.output()) {
    if (!scope.values.contains(output.name())) {
      return fail(ErrorCode::kData, fmt::format("output '{}' is not produced by any node", output.name()));
    }
    reader.Clear();
    reader.add_input(output.name());
    reader.add_output(output.name());
    Node node(scope, reader);
    if (node.value(0).sequence != nullptr) {
      return fail(ErrorCode::kUsage, fmt::format("not supported: output '{}' is a sequence; export its tensors as "
                                                 "outputs of their own",
                                                 output.name()));
    }
    POPRUN_ASSIGN(const TensorId tensor, node.row_major(0));
    imported.outputs.push_back({output.name(), node.element(0), tensor});
  }
  return {};
}

Result<Imported> import_graph(Builder& builder, const OnnxModel& model, const ImportOptions& options) {
  Scope scope;
  scope.builder = &builder;
  scope.constants = model.constants();
  builder.graph().reserve(model.names());
  scope.opset = model.opset();
  scope.training = options.training;
  scope.as_written = options.as_written;
  scope.half = options.half;
  GraphProto const& graph = model.proto().graph();
  scope.read = values_read(graph);
  scope.storage = Storage(model.proto(), options.trained);
  POPRUN_TRY(check_trained(graph, scope.storage, options.trained));
  POPRUN_TRY(add_inputs(model, options, scope));
  const LastSoftmax last = options.logits ? last_softmax(graph) : LastSoftmax{};
  Imported imported;
  const std::size_t first = builder.operations().size();
  const auto operations_are_of = [&](int node) {
    imported.node_of_operation.resize(builder.operations().size() - first, static_cast<std::size_t>(node));
  };
  for (int k = 0; k < graph.node_size(); ++k) {
    const NodeProto& proto = graph.node(k);
    if (&proto == last.node && leave_out(scope, last, options, graph.output(0))) {
      continue;
    }
    POPRUN_TRY(
        translate(scope, proto).map_error([&](Error error) { return with_batch_of_file(scope, std::move(error)); }));
    operations_are_of(k);
  }
  POPRUN_TRY(take_outputs(graph, scope, imported));
  operations_are_of(graph.node_size() - 1);
  imported.weights = std::move(scope.weights);
  imported.notes = std::move(scope.notes);
  imported.surprises = std::move(scope.surprises);
  imported.surprises.in_nodes = scope.storage.in_nodes();
  return imported;
}

}  // namespace

Status translate(Scope& scope, const NodeProto& proto) {
  Node node(scope, proto);
  if (const Status status = translate(node); !status) {
    return fail(status.error().code, fmt::format("{}: {}", where(proto), status.error().message));
  }
  return {};
}

std::vector<std::string> supported_operators() {
  std::vector<std::string> names(kOwn.begin(), kOwn.end());
  for (const Translator& translator : all_translators()) {
    names.push_back(translator.op);
  }
  std::ranges::sort(names);
  return names;
}

Result<OnnxModel> OnnxModel::parse(std::string_view bytes) {
  auto proto = std::make_shared<ModelProto>();
  if (!proto->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || !proto->has_graph()) {
    return fail(ErrorCode::kData, fmt::format("not an ONNX model, or a damaged one ({} B)", bytes.size()));
  }
  OnnxModel model;
  POPRUN_ASSIGN(model.opset_, opset_of(*proto));
  if (proto->graph().output().empty()) {
    return fail(ErrorCode::kData, "its graph has no outputs; export the model with at least one output");
  }
  // This comes first, since libonnx's checker considers functions and unknown operators experimental and warns.
  POPRUN_TRY(expand_functions(*proto).map_error(on_one_line));
  POPRUN_TRY(check_operators(proto->graph()).map_error(on_one_line));
  POPRUN_TRY(check_graph(*proto, model.opset_));
  POPRUN_TRY(check_names(*proto));
  add_tensor_names(proto->graph(), model.names_);
  while (some_begins_with(model.names_, model.constants_)) {
    model.constants_.insert(model.constants_.size() - 1, "~");
  }
  for (const std::string& name : std::set(model.names_)) {
    model.names_.insert(model.constants_ + name);
  }
  model.inputs_ = inputs_of(proto->graph());
  model.proto_ = std::move(proto);
  return model;
}

Result<Imported> import_model(Builder& builder, const OnnxModel& model, const ImportOptions& options) {
  return import_graph(builder, model, options).map_error(on_one_line);
}

}  // namespace poprun::onnx_import
