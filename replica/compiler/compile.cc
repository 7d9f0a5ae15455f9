#include "replica/compiler/compile.h"

#include <algorithm>
#include <iterator>
#include <regex>
#include <set>

#include <fmt/format.h>

#include "replica/compiler/differentiation/differentiate.h"
#include "replica/compiler/exchange/background.h"
#include "replica/compiler/liveness/liveness.h"
#include "replica/compiler/lowering/lower.h"
#include "replica/compiler/placement/memory_plan.h"
#include "replica/compiler/placement/out_of_memory.h"

namespace poprun {
namespace {

const TensorType kScalar{DataType::kF32, {}, Layout::kRowMajor};
const Attributes kZeroMetrics{{"shape", Shape{3}}, {"value", 0.0}};

/// Adds a function with one region for each repeat count; gives its index.
std::size_t add_function(Graph& graph, std::string name, const std::vector<std::int64_t>& repeats) {
  Function function{std::move(name), {}};
  function.regions.reserve(repeats.size());
  for (const std::int64_t repeat : repeats) {
    function.regions.push_back({repeat, {}});
  }
  graph.functions.push_back(std::move(function));
  return graph.functions.size() - 1;
}

/// Streams a micro-batch in, runs the model on it, and adds its metrics to `metrics`.
ForwardOutputs add_forward(Builder& builder, const CompileOptions& options,
                           const std::string& stream, TensorId metrics, bool training) {
  std::vector<std::string> names;
  std::vector<TensorType> types;
  for (const StreamedTensor& input : options.inputs) {
    names.push_back(input.name);
    types.push_back(input.type);
  }
  const auto inputs = builder.stream_in(stream, names, types);
  const ForwardOutputs outputs = options.forward(builder, inputs, training);
  if (outputs.scored) {
    builder.update("accumulate_metrics", {metrics, outputs.loss, outputs.correct, outputs.count},
                   {}, {metrics});
  }
  return outputs;
}

/// Tensors of these roles, sorted by name.
std::vector<TensorId> tensors_by_name(const Graph& graph, const std::set<Role>& roles) {
  std::vector<TensorId> found;
  for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
    if (roles.contains(graph.tensors()[t].role)) {
      found.push_back(TensorId{t});
    }
  }
  std::ranges::sort(found, {}, [&](TensorId id) { return graph.tensor(id).name; });
  return found;
}

/// Replaces each gradient by an accumulator over the step's micro-batches, zeroed in `begin`: their
/// sum, or their running mean, which neither overflows nor loses the last of many terms in float16.
void accumulate_gradients(Builder& begin, Builder& body, bool mean,
                          std::vector<ParameterGradient>& gradients) {
  const Attributes attributes{{"mean", std::int64_t{mean ? 1 : 0}}};
  for (ParameterGradient& pair : gradients) {
    const std::string name = begin.graph().tensor(pair.parameter).name + ".accumulator";
    const TensorId sum = begin.add_one(
        "fill", {}, {{"shape", begin.type(pair.parameter).shape}, {"value", 0.0}}, name);
    begin.graph().set_role(sum, Role::kGradient);
    body.update("accumulate", {sum, pair.gradient}, attributes, {sum});
    pair.gradient = sum;
  }
}

/// What the host tells every step.
struct Controls {
  StepScalars scalars;
  TensorId drain;
};

Controls stream_controls(Builder& begin, bool host_scales_loss) {
  std::vector<std::string> names = {"learning-rate", "drain", "step"};
  if (host_scales_loss) {
    names.emplace_back("loss-scale");
  }
  const auto in = begin.stream_in("control", names, std::vector<TensorType>(names.size(), kScalar));
  Controls controls{.scalars = {.rate = in[0], .step = in[2]}, .drain = in[1]};
  if (host_scales_loss) {
    controls.scalars.loss_scale = in[3];
  }
  return controls;
}

/// Gradients and running statistics become their means over the replicas; `more` goes with them.
void exchange(Builder& update, const std::vector<ParameterGradient>& gradients,
              const std::vector<TensorId>& more) {
  std::vector<TensorId> exchanged;
  std::set<TensorId> seen;
  for (const ParameterGradient& pair : gradients) {
    // The terms of a sum share one gradient; it is exchanged once.
    if (seen.insert(pair.gradient).second) {
      exchanged.push_back(pair.gradient);
    }
  }
  std::ranges::copy(tensors_by_name(update.graph(), {Role::kBuffer}),
                    std::back_inserter(exchanged));
  exchanged.insert(exchanged.end(), more.begin(), more.end());
  update.all_reduce("mean", exchanged);
}

/// Updates the parameters and tells the host of the step.
Status add_update(Builder& update, const CompileOptions& options,
                  const std::vector<ParameterGradient>& gradients, Controls controls,
                  TensorId metrics) {
  OptimizerOptions optimizer = options.optimizer;
  optimizer.gradient_scale =
      options.precision.half ? 1.0 : 1.0 / static_cast<double>(options.gradient_accumulation);
  optimizer.master_weights = options.precision.master_weights;
  const bool host_scales_loss = controls.scalars.loss_scale.has_value();
  if (!host_scales_loss) {
    optimizer.gradient_scale /= options.loss_scaling;
  }
  add_gradient_factor(update, optimizer, gradients, controls.scalars);
  POPRUN_TRY(add_optimizer(update, optimizer, gradients, controls.scalars));
  std::vector<TensorId> step = {metrics, controls.drain};
  if (host_scales_loss) {
    step.push_back(*controls.scalars.factor);
  }
  update.stream_out("step", step);
  return update.status();
}

/// Parameters that are not trained. Errors: kUsage, the pattern matches none, or all.
Result<std::set<TensorId>> frozen_parameters(const Graph& graph, const std::string& text) {
  std::set<TensorId> frozen;
  if (text.empty()) {
    return frozen;
  }
  const std::regex pattern(text);
  const auto parameters = tensors_by_name(graph, {Role::kParameter});
  std::ranges::copy_if(parameters, std::inserter(frozen, frozen.end()), [&](TensorId id) {
    return std::regex_search(graph.tensor(id).name, pattern);
  });
  if (frozen.empty() || frozen.size() == parameters.size()) {
    return fail(ErrorCode::kUsage,
                fmt::format("training.frozen = {} matches {} of the model's {} weights, as '{}'; "
                            "needed some of them",
                            text, frozen.empty() ? "none" : "all", parameters.size(),
                            graph.tensor(parameters.at(0)).name));
  }
  return frozen;
}

Status add_training(Graph& graph, const CompileOptions& options) {
  const std::size_t train = add_function(graph, "train", {1, options.gradient_accumulation, 1});
  Builder begin(graph, train, 0, "");
  Builder body(graph, train, 1, "");
  Builder update(graph, train, 2, "");

  const Controls controls = stream_controls(begin, options.loss_scaling == 0);
  const TensorId metrics = begin.add_one("fill", {}, kZeroMetrics, "train.metrics");
  graph.set_role(metrics, Role::kMetric);

  const ForwardOutputs outputs = add_forward(body, options, "train", metrics, true);
  POPRUN_TRY(body.status());
  const TensorId loss_scale =
      controls.scalars.loss_scale
          ? *controls.scalars.loss_scale
          : body.add_one("fill", {}, {{"shape", Shape{}}, {"value", options.loss_scaling}},
                         graph.tensor(outputs.loss).name + ".gradient");
  if (!controls.scalars.loss_scale) {
    graph.set_role(loss_scale, Role::kMetric);
  }
  POPRUN_ASSIGN(const std::set<TensorId> frozen, frozen_parameters(graph, options.frozen));
  POPRUN_ASSIGN(std::vector<ParameterGradient> gradients,
                differentiate(body, outputs.loss, loss_scale, frozen));
  if (options.gradient_accumulation > 1) {
    accumulate_gradients(begin, body, options.precision.half, gradients);
  }
  POPRUN_TRY(begin.status());
  POPRUN_TRY(body.status());

  exchange(update, gradients, {metrics, controls.drain});
  return add_update(update, options, gradients, controls, metrics);
}

/// Sends a prediction to the host, which cuts it into items.
Status put_out(Builder& body, const CompileOptions& options, std::optional<TensorId> prediction) {
  if (!prediction || body.type(*prediction).shape.empty() ||
      body.type(*prediction).shape[0] != options.micro_batch_size) {
    return fail(ErrorCode::kUsage,
                fmt::format("model.mode = inference needs an output of model {} with one row for "
                            "each of {} samples, it has {}",
                            options.model, options.micro_batch_size,
                            prediction ? to_text(body.type(*prediction)) : "none"));
  }
  body.stream_out("outputs", {*prediction});
  return {};
}

Status add_evaluation(Graph& graph, const CompileOptions& options) {
  Builder begin(graph, add_function(graph, "evaluate_begin", {1}), 0, "evaluate/");
  const TensorId metrics = begin.add_one("fill", {}, kZeroMetrics, "metrics");
  graph.set_role(metrics, Role::kMetric);

  Builder body(graph, add_function(graph, "evaluate", {1}), 0, "evaluate/");
  const ForwardOutputs outputs = add_forward(body, options, "test", metrics, false);
  POPRUN_TRY(body.status());
  if (options.inference) {
    POPRUN_TRY(put_out(body, options, outputs.prediction));
  }

  Builder end(graph, add_function(graph, "evaluate_end", {1}), 0, "evaluate/");
  end.all_reduce("sum", {metrics});
  end.stream_out("evaluation", {metrics});
  return end.status();
}

/// Lets the host write weights instead of their initialisers. Constants that the model brought have
/// none: an operator makes them.
void load_from_host(Graph& graph, std::vector<TensorId> weights) {
  auto& operations = graph.functions[0].regions[0].operations;
  std::erase_if(weights, [&operations](TensorId id) {
    return std::ranges::none_of(operations, [id](const Operation& operation) {
      return operation.kind == "initialise" && operation.outputs[0] == id;
    });
  });
  const std::set<TensorId> written(weights.begin(), weights.end());
  std::erase_if(operations, [&written](const Operation& operation) {
    return written.contains(operation.outputs[0]);
  });
  // First: master copies are made from them.
  operations.insert(operations.begin(),
                    {"stream_in", {}, weights, {{"stream", std::string{"weights"}}}});
}

void add_notes(const CompileOptions& options, Program& program) {
  if (options.gradient_bucket > Bytes{0} && options.gradient_accumulation > 1) {
    program.add_notes(
        "training.gradient-bucket has no effect with training.gradient-accumulation: gradients are "
        "complete only behind the last micro-batch");
  }
  if (options.ipus_per_replica > 1) {
    program.add_notes(fmt::format(
        "the model occupies 1 of {} IPUs of each replica: this version does not split a model over "
        "IPUs",
        options.ipus_per_replica));
  }
}

}  // namespace

Result<Graph> build_job(const CompileOptions& options) {
  Graph graph;
  add_function(graph, "load", {1});
  if (!options.inference) {
    POPRUN_TRY(add_training(graph, options));
  }
  if (options.evaluate || options.inference) {
    POPRUN_TRY(add_evaluation(graph, options));
  }
  const auto weights = tensors_by_name(graph, {Role::kParameter, Role::kBuffer});
  if (!options.inference) {
    Builder save(graph, add_function(graph, "save", {1}), 0, "");
    save.stream_out("weights", weights);
  }
  if (options.initial_weights_from_host) {
    load_from_host(graph,
                   tensors_by_name(graph, {Role::kParameter, Role::kBuffer, Role::kConstant}));
  }
  if (options.precision.half) {
    use_half(graph, options.precision);
  }
  if (!options.inference && options.gradient_bucket > Bytes{0} &&
      options.gradient_accumulation == 1) {
    exchange_in_background(graph, options.gradient_bucket);
  }
  POPRUN_TRY(verify_graph(graph));
  return graph;
}

namespace {

Result<Program> plan_graph(const Graph& graph, const CompileOptions& options) {
  const Liveness liveness = compute_liveness(graph);
  const MemoryClaims claims = claims_of(graph, liveness);
  const MemoryPlan plan = plan_memory(claims.intervals);
  POPRUN_TRY(verify_plan(claims.intervals, plan));
  Program program = lower(graph, liveness, claims, plan, options.device,
                          {options.replicas, options.ipus_per_replica});
  program.set_model(options.model);
  add_notes(options, program);
  return program;
}

}  // namespace

Result<Program> plan_program(const CompileOptions& options) {
  POPRUN_ASSIGN(const Graph graph, build_job(options));
  return plan_graph(graph, options);
}

Result<Program> compile_graph(const Graph& graph, const CompileOptions& options) {
  POPRUN_TRY(verify_graph(graph));
  POPRUN_ASSIGN(Program program, plan_graph(graph, options));
  POPRUN_TRY(check_fits(program, options.micro_batch_size));
  return program;
}

Result<Program> compile(const CompileOptions& options) {
  POPRUN_ASSIGN(Program program, plan_program(options));
  POPRUN_TRY(check_fits(program, options.micro_batch_size));
  return program;
}

}  // namespace poprun
