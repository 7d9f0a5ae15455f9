#include "replica/models/onnx/job_model.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/text.h"
#include "replica/models/layers/layers.h"
#include "replica/models/layers/losses.h"
#include "replica/models/layers/shapes.h"
#include "replica/models/onnx/last_softmax.h"

namespace poprun::onnx_import {
namespace {

using layers::reshape;

/// Returns a shape as text, such as `[N,3,224,224]`, with N for the batch and ? for open dimensions.
std::string shape_text(const Shape& dims) {
  std::vector<std::string> parts;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    parts.push_back(d == 0 ? "N" : dims[d] < 0 ? "?" : std::to_string(dims[d]));
  }
  return fmt::format("[{}]", fmt::join(parts, ","));
}

bool fits(const Shape& wanted, const Shape& given) {
  if (wanted.size() != given.size()) {
    return false;
  }
  for (std::size_t d = 1; d < wanted.size(); ++d) {
    if (wanted[d] >= 0 && wanted[d] != given[d]) {
      return false;
    }
  }
  return true;
}

bool names_batch(std::string symbol) {
  std::ranges::transform(symbol, symbol.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return symbol == "b" || symbol == "bs" || symbol.find("batch") != std::string::npos;
}

/// Returns the open dimension, other than the first, that seems to be the input's batch dimension, if there is one: its
/// symbol names a batch, or it matches the output's open first dimension while the input's first dimension is fixed.
std::optional<std::size_t> other_batch_axis(const GraphInput& input, const ::onnx::ValueInfoProto& output) {
  if (input.dims.empty() || names_batch(input.symbols[0])) {
    return std::nullopt;
  }
  const auto& out = output.type().tensor_type().shape().dim();
  const bool output_is_open = !out.empty() && !out[0].has_dim_value();
  for (std::size_t d = 1; d < input.dims.size(); ++d) {
    if (input.dims[d] >= 0) {
      continue;
    }
    const std::string& symbol = input.symbols[d];
    const bool as_output =
        output_is_open && input.dims[0] >= 0 &&
        (symbol.empty() || out[0].dim_param().empty() ? input.dims[0] > 1 : symbol == out[0].dim_param());
    if (names_batch(symbol) || as_output) {
      return d;
    }
  }
  return std::nullopt;
}

Status check_batch_axis(const GraphInput& input, const ::onnx::ValueInfoProto& output) {
  const auto axis = other_batch_axis(input, output);
  if (!axis) {
    return {};
  }
  std::vector<std::string> dims;
  for (std::size_t d = 0; d < input.dims.size(); ++d) {
    dims.push_back(input.dims[d] >= 0         ? std::to_string(input.dims[d])
                   : input.symbols[d].empty() ? "?"
                                              : input.symbols[d]);
  }
  return fail(ErrorCode::kUsage, fmt::format("the model's input '{}' [{}] has its batch on axis {}, not on axis 0: "
                                             "export the model with the batch first (batch_first=True in PyTorch)",
                                             input.name, fmt::join(dims, ","), *axis));
}

std::string dataset_name(const std::string& input) {
  return input == "input_ids" ? "tokens" : input == "token_type_ids" ? "segments" : input;
}

/// Returns the dataset's tensor for an input, by the rule of JobModel::build.
std::optional<TensorId> stream_for(const GraphInput& input, const ModelInputs& given, bool only) {
  std::optional<TensorId> first;
  for (std::size_t i = 0; i < given.names.size(); ++i) {
    if (given.names[i] == input.name || given.names[i] == dataset_name(input.name)) {
      return given.tensors[i];
    }
    if (only && !first && given.names[i] != "labels") {
      first = given.tensors[i];
    }
  }
  return first;
}

std::string free_name(const Builder& builder, std::string name) {
  while (builder.is_taken(name)) {
    name += "~";
  }
  return name;
}

TensorId fill(Builder& builder, const std::string& name, double value) {
  return builder.add_one("fill", {}, {{"shape", Shape{}}, {"value", value}}, name);
}

/// Transposes logits [N,K,...] to [N,...,K].
TensorId with_classes_last(Builder& builder, const std::string& name, TensorId logits) {
  const Shape shape = builder.type(logits).shape;
  const TensorId rows = reshape(builder, name + ".rows", logits, shape);
  std::vector<std::int64_t> perm(shape.size());
  std::iota(perm.begin(), perm.end(), 0);
  std::rotate(perm.begin() + 1, perm.begin() + 2, perm.end());
  return builder.add_one("transpose", {rows}, {{"perm", perm}}, name + ".logits");
}

Result<ModelOutputs> cross_entropy(Builder& builder, const std::string& name, TensorId output, TensorId labels,
                                   std::int64_t classes) {
  if (builder.type(labels).data != DataType::kI32) {
    return fail(
        ErrorCode::kUsage,
        fmt::format("model.loss = {} needs labels of type i32, but the dataset has {}; save classes as integers "
                    "(one-hot labels: argmax(axis=-1)), or, to predict numbers, set model.loss = {}",
                    word_of(Loss::kCrossEntropy), to_text(builder.type(labels)), word_of(Loss::kMeanSquaredError)));
  }
  Shape shape = builder.type(output).shape;
  TensorId logits = output;
  if (classes_come_second(shape, builder.type(labels).shape)) {
    logits = with_classes_last(builder, name, output);
    shape = builder.type(logits).shape;
  } else if (builder.type(labels).shape.size() + 1 < shape.size()) {
    shape = without_pixels(shape);
    logits = output = reshape(builder, name + ".logits", output, shape);
  }
  if (classes > 0 && !shape.empty() && shape.back() < classes) {
    return fail(ErrorCode::kUsage, fmt::format("the model has {}, but the dataset has {} classes",
                                               counted(static_cast<std::uint64_t>(shape.back()), "logit"), classes));
  }
  const auto y = builder.add("softmax_cross_entropy", {logits, labels}, {}, {name, name + ".correct", name + ".count"});
  return ModelOutputs{.loss = y[0], .correct = y[1], .count = y[2], .prediction = output};
}

/// The target values of the output, f32 [N,D], and a mask, f32 [N], that is 1 for each row that counts and otherwise 0.
struct Targets {
  TensorId values;
  TensorId counts;
  std::optional<TensorId> correct = {};  ///< f32 [N]: 1 if the largest output is that of the class.
};

Targets classes_as_targets(Builder& builder, const std::string& name, TensorId output, TensorId labels, std::int64_t N,
                           std::int64_t D) {
  const TensorId reals = builder.add_one("cast", {labels}, {{"to", std::string{"f32"}}}, name + ".labels");
  const TensorId zero = fill(builder, name + ".zero", 0);
  const TensorId counts = builder.add_one("greater_equal", {reals, zero}, {}, name + ".counts");
  if (D == 1) {
    return {reshape(builder, name + ".targets", reals, {N, 1}), counts, {}};
  }
  const TensorId values =
      builder.add_one("one_hot", {labels}, {{"depth", D}, {"on", 1.0}, {"off", 0.0}}, name + ".targets");
  const TensorId best =
      builder.add_one("arg_max", {output}, {{"axis", std::int64_t{1}}, {"last", std::int64_t{0}}}, name + ".best");
  const TensorId rows = reshape(builder, name + ".best-of-row", best, {N});
  const TensorId equal = builder.add_one("equal", {rows, labels}, {}, name + ".hits");
  return {values, counts, equal};
}

/// Returns numeric labels as targets. A row of NaN is padding (hostio/streams/wire.h) and does not count.
Targets numbers_as_targets(Builder& builder, const std::string& name, TensorId labels, std::int64_t N, std::int64_t D) {
  const TensorId given = reshape(builder, name + ".labels", labels, {N, D});
  const TensorId known = builder.add_one("equal", {given, given}, {}, name + ".known");
  const TensorId zero = fill(builder, name + ".zero", 0);
  const TensorId values = builder.add_one("where", {known, given, zero}, {}, name + ".targets");
  return {values, layers::reduce(builder, name + ".counts", layers::Reduction::kMin, known, {1},
                                 /*keep_dims=*/false)};
}

/// Adds the mean, over the rows that count, of mean((y - target)^2). It selects those rows instead of multiplying by a
/// mask, since no factor turns a NaN or an infinity into 0.
Result<ModelOutputs> mean_squared_error(Builder& builder, const std::string& name, TensorId output, TensorId labels) {
  const Shape shape = builder.type(output).shape;
  const TensorType given = builder.type(labels);
  const std::int64_t N = shape.empty() ? 1 : shape[0];
  const std::int64_t D = builder.type(output).elements() / N;
  const std::size_t first = builder.graph().tensors().size();
  const TensorId y = reshape(builder, name + ".output", output, {N, D});
  Targets targets{};
  if (given.data == DataType::kF32 && given.elements() == N * D) {
    targets = numbers_as_targets(builder, name, labels, N, D);
  } else if (given == TensorType{DataType::kI32, {N}, {}}) {
    targets = classes_as_targets(builder, name, y, labels, N, D);
  } else {
    return fail(ErrorCode::kUsage,
                fmt::format("model.loss = {}: the model outputs {}, but the labels are {}",
                            word_of(Loss::kMeanSquaredError), to_text(builder.type(output)), to_text(given)));
  }
  using layers::Reduction;
  const TensorId mask = reshape(builder, name + ".mask", targets.counts, {N, 1});
  const TensorId every = builder.add_one("sub", {y, targets.values}, {}, name + ".every");
  const TensorId difference =
      builder.add_one("where", {mask, every, fill(builder, name + ".none", 0)}, {}, name + ".difference");
  const TensorId squares = builder.add_one("mul", {difference, difference}, {}, name + ".squares");
  const TensorId rows = layers::reduce(builder, name + ".rows", Reduction::kMean, squares, {1}, false);
  const TensorId total = layers::reduce(builder, name + ".sum", Reduction::kSum, rows, {0}, false);
  const TensorId count = layers::reduce(builder, name + ".count", Reduction::kSum, targets.counts, {0}, false);
  const TensorId one = fill(builder, name + ".one", 1);
  const TensorId divisor = builder.add_one("max", {count, one}, {}, name + ".divisor");
  const TensorId loss = builder.add_one("div", {total, divisor}, {}, name);
  const TensorId correct =
      targets.correct ? layers::reduce(builder, name + ".correct", Reduction::kSum, *targets.correct, {0}, false)
                      : builder.add_one("sub", {fill(builder, name + ".nothing", 0), count}, {}, name + ".correct");
  layers::mark_metrics(builder.graph(), first);
  return ModelOutputs{.loss = loss, .correct = correct, .count = count, .prediction = output};
}

/// The outputs are those of open_clip's models: two embeddings and, if present, the factor of their similarities.
Result<ModelOutputs> global_contrastive(Builder& builder, const std::string& name, const std::string& where,
                                        const Imported& imported, TensorId labels, std::int64_t replicas) {
  const std::vector<ImportedOutput>& outputs = imported.outputs;
  if (outputs.size() < 2) {
    return fail(ErrorCode::kUsage, fmt::format("{} needs two outputs, embeddings [N,D] of both sides of the pairs, and "
                                               "optionally the factor of their similarities, but the model has only "
                                               "'{}'; export the embeddings as outputs, or, with similarities [N,N] as "
                                               "the output, set model.loss = {}",
                                               where, outputs.at(0).name, word_of(Loss::kContrastive)));
  }
  layers::Pairs pairs{.left = outputs[0].tensor, .right = outputs[1].tensor};
  if (outputs.size() > 2) {
    pairs.scale = outputs[2].tensor;
  }
  return layers::global_contrastive_loss(builder, name, where, pairs, labels, replicas);
}

/// Adds the loss of the first output. Errors: returned, or those of the builder.
Result<ModelOutputs> add_loss(Builder& builder, Loss loss, const std::string& name, const Imported& imported,
                              TensorId labels, const ModelInputs& inputs) {
  const TensorId output = imported.outputs.at(0).tensor;
  const std::string where = fmt::format("model.loss = {}", word_of(loss));
  switch (loss) {
    case Loss::kCrossEntropy:
      return cross_entropy(builder, name, output, labels, inputs.label_classes);
    case Loss::kMeanSquaredError:
      return mean_squared_error(builder, name, output, labels);
    case Loss::kBinaryCrossEntropy:
      return layers::binary_cross_entropy(builder, name, where, output, labels, inputs.label_classes);
    case Loss::kContrastive:
      return layers::contrastive_loss(builder, name, where, output, labels);
    case Loss::kGlobalContrastive:
      return global_contrastive(builder, name, where, imported, labels, inputs.replicas);
    case Loss::kCtc:
      break;
  }
  return layers::ctc_loss(builder, name, where, output, labels);
}

}  // namespace

Result<std::shared_ptr<JobModel>> JobModel::parse(const std::string& file, std::string_view bytes, Loss loss,
                                                  const std::string& trained_constants) {
  auto model = OnnxModel::parse(bytes);
  if (!model) {
    return fail(model.error().code, fmt::format("model.onnx {}: {}", file, model.error().message));
  }
  return std::shared_ptr<JobModel>(new JobModel(file, std::move(*model), loss, trained_constants));
}

Result<TensorId> JobModel::input_of(Builder& builder, const GraphInput& input, const ModelInputs& given) const {
  const auto stream = stream_for(input, given, model_.inputs().size() == 1);
  if (!stream) {
    return fail(ErrorCode::kUsage, fmt::format("the model needs input '{}', but the dataset provides {}", input.name,
                                               fmt::join(given.names, ", ")));
  }
  POPRUN_TRY(check_batch_axis(input, model_.proto().graph().output(0)));
  TensorType type = builder.type(*stream);
  // Datasets store a sequence as an image [N,1,C,L] of one channel, but models of sequences take [N,C,L].
  const bool sequence = input.has_shape && input.dims.size() == 3 && type.shape.size() == 4 && type.shape[1] == 1 &&
                        type.data == DataType::kF32;
  if (sequence) {
    type.shape.erase(type.shape.begin() + 1);
  }
  if (input.has_shape && !fits(input.dims, type.shape)) {
    return fail(ErrorCode::kUsage, fmt::format("the model needs '{}' of shape {}, but the dataset provides {}",
                                               input.name, shape_text(input.dims), shape_text(type.shape)));
  }
  const bool image = type.data == DataType::kU8 && type.shape.size() == 4;
  if (is_real(input.element) != (image || type.data == DataType::kF32)) {
    return fail(ErrorCode::kUsage, fmt::format("the model needs '{}' of type {}, but the dataset provides {}",
                                               input.name, element_name(input.element), to_text(type)));
  }
  return image      ? builder.add_one("normalize", {*stream}, {{"mean", given.mean}, {"deviation", given.deviation}},
                                      free_name(builder, input.name + ".normalized"))
         : sequence ? reshape(builder, free_name(builder, input.name + ".sequence"), *stream, type.shape)
                    : *stream;
}

void JobModel::mark_layers(Builder& builder, std::size_t first, std::size_t first_imported, const Imported& imported) {
  const std::vector<std::size_t>& nodes = imported.node_of_operation;
  if (layers_.empty()) {
    std::vector<TensorId> outputs;
    std::ranges::transform(imported.outputs, std::back_inserter(outputs), &ImportedOutput::tensor);
    layers_ = narrowest_cuts({.graph = builder.graph(),
                              .operations = std::span(builder.operations()).subspan(first_imported),
                              .node = nodes,
                              .outputs = outputs},
                             model_.proto().graph());
  }
  for (const Piece& layer : layers_) {
    const auto begin = std::ranges::lower_bound(nodes, layer.node) - nodes.begin();
    builder.layer_from(layer.node == 0 ? first : first_imported + static_cast<std::size_t>(begin), layer.name);
  }
}

Status JobModel::check_first_output(const Builder& builder, const Imported& imported, const ModelInputs& inputs) const {
  const ImportedOutput& output = imported.outputs.at(0);
  const TensorType& type = builder.type(output.tensor);
  const std::int64_t N = inputs.tensors.empty() ? 1 : builder.type(inputs.tensors[0]).shape.at(0);
  if (!type.shape.empty() && (type.elements() > 1 || N == 1)) {
    return {};
  }
  std::vector<std::string> others;
  for (std::size_t k = 1; k < imported.outputs.size(); ++k) {
    others.push_back(
        fmt::format("'{}' {}", imported.outputs[k].name, to_text(builder.type(imported.outputs[k].tensor))));
  }
  return fail(ErrorCode::kUsage, fmt::format("the first output '{}' is a single number, but it must be the {}, with a "
                                             "row for each of {} samples; export the model with that output first "
                                             "(other outputs: {})",
                                             output.name, loss_ == Loss::kCrossEntropy ? "logits" : "predictions", N,
                                             others.empty() ? "none" : fmt::format("{}", fmt::join(others, ", "))));
}

Result<ModelOutputs> JobModel::try_build(Builder& builder, const ModelInputs& inputs) {
  ImportOptions options;
  options.training = inputs.training;
  options.half = inputs.half;
  options.trained = trained_;
  options.logits = loss_ == Loss::kCrossEntropy;
  if (inputs.has("labels")) {
    options.labels = builder.type(inputs.find(builder, "labels")).shape;
  }
  const std::size_t first = builder.operations().size();
  for (const GraphInput& input : model_.inputs()) {
    POPRUN_ASSIGN(const TensorId tensor, input_of(builder, input, inputs));
    options.inputs.push_back(tensor);
  }
  POPRUN_TRY(builder.status());
  const std::size_t first_imported = builder.operations().size();
  POPRUN_ASSIGN(const Imported imported, import_model(builder, model_, options));
  mark_layers(builder, first, first_imported, imported);
  weights_.insert(imported.weights.begin(), imported.weights.end());
  if (inputs.training) {
    surprises_.add(imported.surprises);
    frozen_ = inputs.frozen;
  }
  for (const Note& note : imported.notes) {
    if (std::ranges::find(notes_, note) == notes_.end()) {
      notes_.push_back(note);
    }
  }
  POPRUN_TRY(check_first_output(builder, imported, inputs));
  const TensorId output = imported.outputs.at(0).tensor;
  if (!inputs.scored()) {
    return ModelOutputs{.prediction = output, .scored = false};
  }
  const TensorId labels = inputs.find(builder, "labels");
  POPRUN_TRY(builder.status());
  const Shape& logits = builder.type(output).shape;
  const Shape& labelled = builder.type(labels).shape;
  if (loss_ == Loss::kCrossEntropy && classes_are_ambiguous(logits, labelled)) {
    const bool second = classes_come_second(logits, labelled);
    Note note{"onnx.classes-axis",
              fmt::format("the classes of the output [{}] can be on axis 1 or on the last axis, judging by the labels "
                          "[{}]; assumed: {}",
                          fmt::join(logits, ","), fmt::join(labelled, ","),
                          second ? "axis 1, as for pixels in PyTorch" : "the last, as for tokens"),
              {{"axis", second ? 1 : std::ssize(logits) - 1}}};
    if (std::ranges::find(notes_, note) == notes_.end()) {
      notes_.push_back(std::move(note));
    }
  }
  const std::string name = free_name(builder, "loss");
  POPRUN_ASSIGN(const ModelOutputs outputs, add_loss(builder, loss_, name, imported, labels, inputs));
  POPRUN_TRY(builder.status());
  return outputs;
}

ModelOutputs JobModel::build(Builder& builder, const ModelInputs& inputs) {
  const auto outputs = try_build(builder, inputs);
  if (!outputs) {
    builder.restate({outputs.error().code, fmt::format("model.onnx {}: {}", file_, outputs.error().message)});
    return {};
  }
  return *outputs;
}

std::vector<Note> JobModel::notes() const {
  std::vector<Note> notes = notes_;
  if (const std::string text = surprises_.note(frozen_); !text.empty()) {
    notes.push_back({"onnx.trained", fmt::format("model.onnx {}: {}", file_, text)});
  }
  return notes;
}

Result<std::map<std::string, std::string, std::less<>>> JobModel::weights() const {
  std::map<std::string, std::string, std::less<>> all;
  for (const auto& [name, constant] : weights_) {
    if (constant != nullptr) {
      POPRUN_ASSIGN(all[name],
                    device_bytes(*constant, is_integer(constant->element) ? DataType::kI32 : DataType::kF32));
    }
  }
  return all;
}

std::vector<std::string> JobModel::separate() const {
  std::vector<std::string> names;
  for (const auto& [name, constant] : weights_) {
    if (constant == nullptr) {
      names.push_back(name);
    }
  }
  return names;
}

}  // namespace poprun::onnx_import
