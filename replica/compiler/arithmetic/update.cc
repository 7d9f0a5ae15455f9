#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include <fmt/format.h>

#include "replica/base/error.h"
#include "replica/base/pattern.h"
#include "replica/base/text.h"
#include "replica/compiler/arithmetic/differentiation.h"
#include "replica/compiler/arithmetic/orthogonalisation.h"
#include "replica/compiler/job/compile_options.h"
#include "replica/compiler/job/pass.h"
#include "replica/machine/operations.h"
#include "replica/ops/builder/builder.h"
#include "replica/ops/face/kinds.h"
#include "replica/ops/optimizers/optimizer.h"
#include "replica/ops/optimizers/square_sum.h"
#include "replica/program/host_contract.h"

/// Adds the optimiser's update of every trained parameter, and the step's metrics for the host.
namespace poprun::passes::update {
namespace {

Result<const Optimizer*> find(const std::string& name) {
  if (const Optimizer* optimizer = find_optimizer(name)) {
    return optimizer;
  }
  std::vector<std::string> names;
  std::ranges::transform(all_optimizers(), std::back_inserter(names), &Optimizer::name);
  return fail(ErrorCode::kUsage,
              fmt::format("training.optimizer: no optimiser is called '{}'; {}", name, suggestion(name, names)));
}

Result<Attributes> attributes_of(const Optimizer& optimizer, const OptimizerOptions& options) {
  Attributes attributes{{"scale", options.gradient_scale}, {"weight_decay", options.weight_decay}};
  for (const HyperParameter& own : optimizer.hyper_parameters) {
    const auto given = options.hyper_parameters.find(own.name);
    if (given == options.hyper_parameters.end()) {
      return fail(ErrorCode::kUsage,
                  fmt::format("training.{} is missing; optimiser {} needs it", own.name, optimizer.name()));
    }
    if (own.range) {
      attributes.set(own.name, given->second);
    } else {
      attributes.set(own.name, std::int64_t{given->second != 0 ? 1 : 0});
    }
  }
  for (const auto& [name, value] : options.hyper_parameters) {
    if (optimizer.find(name) == nullptr) {
      return fail(ErrorCode::kUsage, fmt::format("training.{} = {}: optimiser {} has no hyper-parameter of this name",
                                                 name, value, optimizer.name()));
    }
  }
  return attributes;
}

Result<std::set<TensorId>> without_decay(Builder& builder, const Optimizer& optimizer, const OptimizerOptions& options,
                                         const std::vector<ParameterGradient>& gradients) {
  std::set<TensorId> exempt;
  if (options.no_decay.empty() || (options.weight_decay == 0 && optimizer.adaptation.empty())) {
    return exempt;
  }
  const bool vectors = options.no_decay == kVectors;
  const Pattern pattern(options.no_decay);
  for (const ParameterGradient& pair : gradients) {
    const Tensor& tensor = builder.graph().tensor(pair.parameter);
    if (vectors ? tensor.type.shape.size() <= 1 : pattern.finds(tensor.name)) {
      exempt.insert(pair.parameter);
    }
  }
  if (exempt.empty() || exempt.size() == gradients.size()) {
    return fail(ErrorCode::kUsage, fmt::format("training.no-decay = {} matches {} of the {} weights that are trained, "
                                               "such as '{}'; it must match some, but not all",
                                               options.no_decay, exempt.empty() ? "none" : "all", gradients.size(),
                                               builder.graph().tensor(gradients.at(0).parameter).name));
  }
  return exempt;
}

/// Sets up the state `PARAMETER.NAME`.
TensorId add_state(Builder& builder, TensorId parameter, const std::string& name, const TensorType& type) {
  const std::string whole = builder.graph().tensor(parameter).name + "." + name;
  return builder.variable(builder.graph().free_name(whole), type, Role::kOptimizerState, {});
}

/// Sets up a master copy of the parameter, with the same initial value.
TensorId add_master(Builder& builder, TensorId parameter) {
  const TensorId master = add_state(builder, parameter, "master", builder.type(parameter));
  Graph& graph = builder.graph();
  graph.keep_f32(master);
  graph.at(graph.load()).operations.push_back({"assign", {master, parameter}, {master}, {}});
  return master;
}

/// Sets up the optimiser's own tensors for the parameter, as for one of type `like`, which the pass "precision" may
/// store in float16.
std::vector<TensorId> add_states(Builder& builder, TensorId parameter, const Optimizer& optimizer,
                                 const TensorType& like) {
  std::vector<TensorId> states;
  for (const auto& [state, type] : optimizer.states_of(like)) {
    const TensorType& own = type.shape == like.shape ? builder.type(parameter) : type;
    states.push_back(add_state(builder, parameter, state->name, TensorType{own}));
    if (!state->may_be_half) {
      builder.graph().keep_f32(states.back());
    }
  }
  return states;
}

/// Adds the tensor of a parameter's two sums of squares, between the two operators of its update.
TensorId add_sums(Graph& graph, TensorId parameter) {
  const std::string name = graph.tensor(parameter).name + ".sums-of-squares";
  return graph.add_tensor({name, {DataType::kI32, {2, SquareSum::kLimbs}, Layout::kRowMajor}, Role::kMetric});
}

/// Appends the operators of one parameter's update, with the operands that ops/optimizers/ defines.
void add_rule(Builder& builder, const Optimizer& optimizer, const Attributes& attributes, const ParameterGradient& pair,
              TensorId weights, const std::vector<TensorId>& states, const StepScalars& scalars) {
  const auto join = [](std::vector<TensorId> all, const std::vector<TensorId>& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  std::vector<TensorId> by;
  if (optimizer.counts_updates) {
    by.push_back(scalars.step);
  }
  if (scalars.factor) {
    by.push_back(*scalars.factor);
  }
  const std::vector<TensorId> own = join({weights, pair.gradient}, states);
  if (optimizer.moments) {
    const TensorId sums = add_sums(builder.graph(), pair.parameter);
    builder.update(optimizer.moments->kind, join(own, by), attributes, join(states, {sums}));
    builder.update(optimizer.rule.kind, join(join(join({weights}, states), {sums, scalars.rate}), by), attributes,
                   {weights});
    return;
  }
  std::vector<TensorId> inputs = own;
  if (optimizer.norms) {
    inputs.push_back(add_sums(builder.graph(), pair.parameter));
    builder.update(optimizer.norms->kind, {weights, pair.gradient}, {}, {inputs.back()});
  }
  builder.update(optimizer.rule.kind, join(join(inputs, {scalars.rate}), by), attributes, join({weights}, states));
}

/// Appends the operators of the update of a matrix whose steps are orthogonalised.
void add_orthogonalised(Builder& builder, const Optimizer& optimizer, const Attributes& attributes,
                        const ParameterGradient& pair, TensorId weights, TensorId momentum,
                        const StepScalars& scalars) {
  Graph& graph = builder.graph();
  const Shape shape = builder.type(pair.parameter).shape;
  const std::int64_t columns = builder.type(pair.parameter).elements() / shape[0];
  const std::string name = graph.free_name(graph.tensor(pair.parameter).name + ".direction");
  const TensorId u =
      graph.add_tensor({name, {DataType::kF32, {shape[0], columns}, Layout::kRowMajor}, Role::kActivation});
  const auto with_factor = [&](std::vector<TensorId> inputs) {
    if (scalars.factor) {
      inputs.push_back(*scalars.factor);
    }
    return inputs;
  };
  builder.update(optimizer.orthogonalised->momentum.kind, with_factor({weights, pair.gradient, momentum}), attributes,
                 {momentum, u});
  const TensorId direction = orthogonalised(builder, name, u);
  builder.update(optimizer.orthogonalised->rule.kind, with_factor({weights, direction, scalars.rate}), attributes,
                 {weights});
}

/// Returns the parameters that are read as embedding tables: by a gather, or, as learnt positions are, by a slice that
/// is added. Slices of serialised layers are factors of products instead.
std::set<TensorId> embedding_tables(const Region& forward) {
  std::set<TensorId> added;
  std::set<TensorId> tables;
  for (const Operation& operation : forward.operations) {
    if (operation.kind == kinds::kAdd) {
      added.insert(operation.inputs.begin(), operation.inputs.end());
    }
  }
  for (const Operation& operation : forward.operations) {
    if (operation.kind == kinds::kGather || (operation.kind == kinds::kSlice && added.contains(operation.outputs[0]))) {
      tables.insert(operation.inputs[0]);
    }
  }
  return tables;
}

void add_update(Builder& builder, const Optimizer& optimizer, const Attributes& attributes, bool master_weights,
                const ParameterGradient& pair, bool is_table, const StepScalars& scalars) {
  const TensorId weights = master_weights ? add_master(builder, pair.parameter) : pair.parameter;
  TensorType type = builder.type(pair.parameter);
  if (optimizer.orthogonalised && type.shape.size() >= 2 && !is_table) {
    add_orthogonalised(builder, optimizer, attributes, pair, weights,
                       add_states(builder, pair.parameter, optimizer, type).at(0), scalars);
  } else {
    if (optimizer.orthogonalised) {
      type.shape = {type.elements()};  // The states are those of a vector, but in the parameter's own shape.
    }
    add_rule(builder, optimizer, attributes, pair, weights, add_states(builder, pair.parameter, optimizer, type),
             scalars);
  }
  if (weights != pair.parameter) {
    builder.update("assign", {pair.parameter, weights}, {}, {pair.parameter});
  }
}

/// Appends the gradients' sums of squares, and returns one per parameter. Parameters that share a gradient share its
/// sum.
std::vector<TensorId> add_sums_of_squares(Builder& builder, const std::vector<ParameterGradient>& gradients) {
  std::map<TensorId, TensorId> by_gradient;
  std::vector<TensorId> sums;
  for (const auto& [parameter, gradient] : gradients) {
    if (!by_gradient.contains(gradient)) {
      const std::string name = builder.graph().tensor(gradient).name + ".sum-of-squares";
      const TensorId sum = builder.add_one("sum_of_squares", {gradient}, {}, name);
      builder.graph().set_role(sum, Role::kMetric);
      by_gradient.emplace(gradient, sum);
    }
    sums.push_back(by_gradient.at(gradient));
  }
  return sums;
}

/// Appends a factor for all gradients, if clipping or the host's loss scale needs one, and sets scalars.factor.
void add_gradient_factor(Builder& builder, const OptimizerOptions& options,
                         const std::vector<ParameterGradient>& gradients, StepScalars& scalars) {
  if (!scalars.loss_scale && options.clip_norm == 0) {
    return;
  }
  std::vector<TensorId> inputs = add_sums_of_squares(builder, gradients);
  const Attributes attributes{{"scale", options.gradient_scale}, {"max_norm", options.clip_norm}};
  std::string kind = "clip_factor";
  if (scalars.loss_scale) {
    kind = "loss_scale_factor";
    inputs.push_back(*scalars.loss_scale);
  }
  scalars.factor = builder.add_one(kind, inputs, attributes, StepOutcome::kGradientFactor);
}

/// Appends the update of every parameter, and sets up the optimiser's state. Errors: kUsage if the optimiser is unknown
/// (the message lists those available), if a hyper-parameter is missing or does not belong to the optimiser, or if
/// `no_decay` matches no parameter or all of them.
Status add_optimizer(Builder& builder, const OptimizerOptions& options, const std::vector<ParameterGradient>& gradients,
                     const std::set<TensorId>& tables, const StepScalars& scalars) {
  POPRUN_ASSIGN(const Optimizer* optimizer, find(options.name));
  POPRUN_ASSIGN(const Attributes attributes, attributes_of(*optimizer, options));
  POPRUN_ASSIGN(const std::set<TensorId> exempt, without_decay(builder, *optimizer, options, gradients));
  Attributes of_exempt = attributes;
  of_exempt.set("weight_decay", 0.0);
  if (!optimizer->adaptation.empty()) {
    of_exempt.set(optimizer->adaptation, 0.0);
  }
  for (const ParameterGradient& pair : gradients) {
    add_update(builder, *optimizer, exempt.contains(pair.parameter) ? of_exempt : attributes, options.master_weights,
               pair, tables.contains(pair.parameter), scalars);
  }
  return builder.status();
}

constexpr std::string_view kName = "update";

Status run(const CompileOptions& options, Job& job) {
  TrainingStep& step = *job.training;
  Builder update(job.graph, step.update, "");
  OptimizerOptions optimizer = options.optimizer;
  if (options.accumulation_kind == AccumulationKind::kMean) {
    optimizer.gradient_scale = 1.0 / static_cast<double>(options.gradient_accumulation);
  }
  optimizer.master_weights = options.precision.master_weights;
  if (!step.scalars.loss_scale) {
    optimizer.gradient_scale /= options.loss_scaling;
  }
  add_gradient_factor(update, optimizer, step.gradients, step.scalars);
  POPRUN_TRY(
      add_optimizer(update, optimizer, step.gradients, embedding_tables(job.graph.at(step.micro_batch)), step.scalars));
  std::vector<TensorId> told = {step.metrics};
  if (step.scalars.loss_scale) {
    told.push_back(*step.scalars.factor);
  }
  update.append(StreamOut{name_of(JobStream::kStep), std::move(told)}.operation());
  return update.status();
}

/// Checks that a step writes each parameter with a gradient exactly once, after the exchange, and no other parameter.
Status verify(const CompileOptions& /*options*/, const Job& /*before*/, const Job& after) {
  const Graph& graph = after.graph;
  const TrainingStep& step = *after.training;
  const Writers begin(graph, step.begin);
  const Writers body(graph, step.micro_batch);
  const Writers update(graph, step.update);
  std::set<TensorId> trained;
  for (const ParameterGradient& pair : step.gradients) {
    trained.insert(pair.parameter);
  }
  bool exchanged = false;
  for (const Operation& operation : graph.at(step.update).operations) {
    exchanged = exchanged || AllReduce::from(operation).has_value();
    for (const TensorId id : operation.outputs) {
      if (!exchanged && graph.tensor(id).role == Role::kParameter) {
        return pass_bug(kName, graph, id, "is updated before the exchange");
      }
    }
  }
  for (const TensorId id : tensors_by_name(graph, {Role::kParameter})) {
    if (update.of(id).size() != trained.count(id) || !begin.of(id).empty() || !body.of(id).empty()) {
      return pass_bug(kName, graph, id,
                      trained.contains(id) ? "is not updated exactly once per step" : "is not trained, but is written");
    }
  }
  return {};
}

}  // namespace

Pass pass() {
  return {kName, in_training, run, verify};
}

}  // namespace poprun::passes::update
