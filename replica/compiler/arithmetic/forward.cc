#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/base/pattern.h"
#include "replica/base/text.h"
#include "replica/compiler/job/pass.h"
#include "replica/machine/operations.h"
#include "replica/ops/face/kinds.h"
#include "replica/program/host_contract.h"

/// Adds the evaluation, the forward pass of training, and the function that sends the weights to the host.
namespace poprun::passes::forward {
namespace {

constexpr std::string_view kName = "forward";

const TensorType kScalar{DataType::kF32, {}, Layout::kRowMajor};

std::vector<Place> add_function(Graph& graph, JobFunction function, const std::vector<std::int64_t>& repeats) {
  return graph.add_function(name_of(function), repeats);
}

TensorId add_metrics(Builder& begin, const std::string& name) {
  const TensorId metrics = begin.add_one(kinds::kFill, {}, {{"shape", Shape{3, 3}}, {"value", 0.0}}, name);
  begin.graph().set_role(metrics, Role::kMetric);
  return metrics;
}

void note_unread(const CompileOptions& options, const std::vector<TensorId>& inputs,
                 std::span<const Operation> operations, std::vector<Note>& notes) {
  std::vector<std::string> unread;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool is_read = std::ranges::any_of(operations, [&](const Operation& operation) {
      return std::ranges::find(operation.inputs, inputs[i]) != operation.inputs.end();
    });
    // A model may ignore labels in inference.
    if (!is_read && !(options.inference && options.inputs[i].name == "labels")) {
      unread.push_back(options.inputs[i].name);
    }
  }
  if (!unread.empty()) {
    const std::string tensors = fmt::format("{}", fmt::join(unread, ", "));
    notes.push_back({"data.not-read",
                     fmt::format("the data has {}, which {} does not read", tensors, options.model),
                     {{"tensors", tensors}}});
  }
}

/// Streams a micro-batch in, runs the model on it, and adds its metrics to `metrics`.
ModelOutputs add_model(Builder& builder, const CompileOptions& options, JobStream stream, TensorId metrics,
                       bool training, std::vector<Note>& notes) {
  std::vector<std::string> names;
  std::vector<TensorType> types;
  for (const StreamedTensor& input : options.inputs) {
    names.push_back(input.name);
    types.push_back(input.type);
  }
  const auto inputs = builder.stream_in(name_of(stream), names, types);
  const ModelOutputs outputs = options.forward(builder, inputs, training);
  if (training || options.inference) {
    note_unread(options, inputs, builder.operations(), notes);
  }
  if (outputs.scored) {
    builder.update(kinds::kAccumulateMetrics, {metrics, outputs.loss, outputs.correct, outputs.count}, {}, {metrics});
  }
  return outputs;
}

/// Streams in the values that the host sends before a step.
void stream_control(Builder& begin, const CompileOptions& options, TrainingStep& step) {
  const bool host_scales_loss = options.loss_scaling == 0;
  StepControl record;
  if (host_scales_loss) {
    record.loss_scale.emplace();
  }
  if (options.weighted_by_labels) {
    for (const StreamedTensor& input : options.inputs) {
      if (is_labels(input.name)) {
        record.mean_labels.emplace_back(input.name);
      }
    }
  }
  std::vector<std::string> names;
  for (const NamedBytes& field : record.fields()) {
    names.emplace_back(field.name);
  }
  const std::vector<TensorId> fields =
      begin.stream_in(name_of(JobStream::kControl), names, std::vector<TensorType>(names.size(), kScalar));
  step.scalars.rate = fields.at(0);
  step.scalars.step = fields.at(1);
  if (host_scales_loss) {
    step.scalars.loss_scale = fields.at(2);
  }
  for (std::size_t k = 0; k < record.mean_labels.size(); ++k) {
    step.scalars.mean_labels[record.mean_labels[k].labels] = fields.at(fields.size() - record.mean_labels.size() + k);
  }
}

/// Checks that compute batches do not change the statistics of normalisation over the batch. Errors: kUsage.
Status check_compute_batches(const CompileOptions& options, const Region& micro_batch) {
  const auto found = std::ranges::find(micro_batch.operations, kinds::kBatchNormTraining, &Operation::kind);
  if (options.compute_batches == 1 || found == micro_batch.operations.end()) {
    return {};
  }
  return fail(ErrorCode::kUsage,
              fmt::format("data.compute-batch-size = {}: {} normalises over the micro-batch, which is computed in {} "
                          "pieces; leave the option out, or set model.normalisation to group, layer or instance",
                          options.micro_batch_size, options.model, options.compute_batches));
}

/// Makes batch norms whose running statistics are frozen use these statistics without updating them. Errors: kUsage if
/// only one of the two statistics of a norm is frozen.
Status freeze_statistics(const std::string& frozen, const Graph& graph, Region& micro_batch) {
  if (frozen.empty()) {
    return {};
  }
  const Pattern pattern(frozen);
  const auto matches = [&](TensorId id) { return pattern.finds(graph.tensor(id).name); };
  std::vector<Operation>& operations = micro_batch.operations;
  std::map<TensorId, Operation> updates;  // Keyed by the tensor that holds the batch's mean.
  for (const Operation& operation : operations) {
    if (operation.kind != kinds::kBatchNormUpdate) {
      continue;
    }
    const TensorId mean = operation.inputs[0];
    const TensorId variance = operation.inputs[1];
    if (matches(mean) != matches(variance)) {
      return fail(ErrorCode::kUsage, fmt::format("training.frozen = {} matches only one of the statistics '{}' and "
                                                 "'{}' of a batch norm; it must match both or neither",
                                                 frozen, graph.tensor(mean).name, graph.tensor(variance).name));
    }
    if (matches(mean)) {
      updates[operation.inputs[2]] = operation;
    }
  }
  for (Operation& operation : operations) {
    if (operation.kind != kinds::kBatchNormTraining || !updates.contains(operation.outputs[1])) {
      continue;
    }
    const Operation& update = updates.at(operation.outputs[1]);
    operation.kind = kinds::kBatchNormInference;
    operation.inputs.insert(operation.inputs.end(), {update.inputs[0], update.inputs[1]});
    operation.outputs.resize(1);
  }
  std::erase_if(operations, [&](const Operation& operation) {
    return operation.kind == kinds::kBatchNormUpdate && updates.contains(operation.inputs[2]);
  });
  return {};
}

/// Smooths the labels of every cross-entropy. Errors: kUsage if the model has no cross-entropy.
Status smooth_labels(const CompileOptions& options, Region& micro_batch) {
  if (options.label_smoothing == 0) {
    return {};
  }
  bool found = false;
  for (Operation& operation : micro_batch.operations) {
    if (operation.kind == kinds::kSoftmaxCrossEntropy) {
      operation.attributes.set(kSmoothing, options.label_smoothing);
      found = true;
    }
  }
  if (!found) {
    return fail(ErrorCode::kUsage, fmt::format("training.label-smoothing = {}: the loss of {} is not a cross-entropy; "
                                               "leave this option out",
                                               options.label_smoothing, options.model));
  }
  return {};
}

Status add_training(const CompileOptions& options, Job& job) {
  const std::vector<Place> places = add_function(job.graph, JobFunction::kTrain, {1, options.gradient_accumulation, 1});
  TrainingStep step{
      .begin = places[0], .micro_batch = places[1], .update = places[2], .scalars = {}, .metrics = {}, .loss = {}};
  Builder begin(job.graph, step.begin, "");
  Builder body(job.graph, step.micro_batch, "", Naming::kModel);
  stream_control(begin, options, step);
  step.metrics = add_metrics(begin, StepOutcome::kMetrics);
  const ModelOutputs outputs = add_model(body, options, JobStream::kTrain, step.metrics, true, job.notes);
  step.loss = outputs.loss;
  step.terms = outputs.terms.empty() ? std::vector<LossTerm>{{outputs.loss, outputs.count}} : outputs.terms;
  job.training = step;
  POPRUN_TRY(begin.status());
  POPRUN_TRY(body.status());
  POPRUN_TRY(freeze_statistics(options.frozen, job.graph, job.graph.at(step.micro_batch)));
  POPRUN_TRY(smooth_labels(options, job.graph.at(step.micro_batch)));
  return check_compute_batches(options, job.graph.at(step.micro_batch));
}

/// Sends a prediction to the host, which splits it into one item per sample.
Status put_out(Builder& body, const CompileOptions& options, std::optional<TensorId> prediction) {
  if (!prediction || body.type(*prediction).shape.empty() ||
      body.type(*prediction).shape[0] != options.micro_batch_size) {
    return fail(ErrorCode::kUsage, fmt::format("model.mode = inference needs an output of model {} with one row for "
                                               "each of {}, but its output is {}",
                                               options.model, counted(options.micro_batch_size, "sample"),
                                               prediction ? to_text(body.type(*prediction)) : "missing"));
  }
  body.append(StreamOut{name_of(JobStream::kOutputs), {*prediction}}.operation());
  return {};
}

Status add_evaluation(const CompileOptions& options, Job& job) {
  Graph& graph = job.graph;
  Builder begin(graph, add_function(graph, JobFunction::kEvaluateBegin, {1})[0], "");
  const TensorId metrics = add_metrics(begin, EvaluationOutcome::kMetrics);

  job.evaluation = add_function(graph, JobFunction::kEvaluate, {options.evaluation_batches})[0];
  Builder body(graph, *job.evaluation, std::string{kEvaluationPrefix}, Naming::kModel);
  const ModelOutputs outputs = add_model(body, options, JobStream::kTest, metrics, false, job.notes);
  POPRUN_TRY(body.status());
  if (options.inference) {
    POPRUN_TRY(put_out(body, options, outputs.prediction));
  }

  Builder end(graph, add_function(graph, JobFunction::kEvaluateEnd, {1})[0], "");
  end.append(AllReduce{Reduction::kSum, false, {metrics}}.operation());
  end.append(StreamOut{name_of(JobStream::kEvaluation), {metrics}}.operation());
  return end.status();
}

void add_save(const CompileOptions& options, Graph& graph) {
  const std::vector<TensorId> weights = tensors_by_name(graph, {Role::kParameter, Role::kBuffer});
  if (weights.empty()) {
    return;
  }
  const Place save = add_function(graph, JobFunction::kSave, {1})[0];
  std::vector<Operation>& operations = graph.at(save).operations;
  if (!streams_weights_one_by_one(options)) {
    operations.push_back(StreamOut{name_of(JobStream::kWeights), weights}.operation());
    return;
  }
  for (const TensorId id : weights) {
    operations.push_back(StreamOut{name_of(JobStream::kWeights), {id}}.operation());
  }
}

Status run(const CompileOptions& options, Job& job) {
  job.graph.reserve(options.given_names);
  add_function(job.graph, JobFunction::kLoad, {1});
  if (!options.inference) {
    POPRUN_TRY(add_training(options, job));
  }
  if (options.evaluate || options.inference) {
    POPRUN_TRY(add_evaluation(options, job));
  }
  if (!options.inference) {
    add_save(options, job.graph);
  }
  return {};
}

/// Checks that training has a scalar loss, and that every parameter and buffer is set up once.
Status verify(const CompileOptions& /*options*/, const Job& /*before*/, const Job& after) {
  const Graph& graph = after.graph;
  if (after.training && !graph.tensor(after.training->loss).type.shape.empty()) {
    return pass_bug(kName, graph, after.training->loss, "is the loss, but not a scalar");
  }
  const Writers setup(graph, graph.load());
  for (const TensorId id : tensors_by_name(graph, {Role::kParameter, Role::kBuffer})) {
    if (setup.of(id).size() != 1) {
      return pass_bug(kName, graph, id, "is not set up exactly once");
    }
  }
  return {};
}

}  // namespace

Pass pass() {
  return {kName, always, run, verify};
}

}  // namespace poprun::passes::forward
