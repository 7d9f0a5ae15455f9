#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/compiler/optimizers/optimizers.h"
#include "replica/program/host_contract.h"

namespace poprun {

#define POPRUN_FAMILY(stem) Optimizer stem##_optimizer();
#include "replica/compiler/optimizers/families.inc"
#undef POPRUN_FAMILY

namespace {

Result<Optimizer> find_optimizer(const std::string& name) {
  std::vector<Optimizer> optimizers = {
#define POPRUN_FAMILY(stem) stem##_optimizer(),
#include "replica/compiler/optimizers/families.inc"
#undef POPRUN_FAMILY
  };
  std::vector<std::string> names;
  for (const Optimizer& optimizer : optimizers) {
    if (optimizer.name == name) {
      return optimizer;
    }
    names.push_back(optimizer.name);
  }
  std::ranges::sort(names);
  return fail(ErrorCode::kUsage,
              fmt::format("training.optimizer: no optimiser is called '{}'; there are: {}", name,
                          fmt::join(names, ", ")));
}

/// Sets up the copy with the parameter's first value.
TensorId add_master(Builder& builder, TensorId parameter) {
  const std::string name = builder.graph().tensor(parameter).name + ".master";
  const TensorId master =
      builder.variable(name, builder.type(parameter), Role::kOptimizerState, {});
  Graph& graph = builder.graph();
  graph.at(graph.load()).operations.push_back({"assign", {master, parameter}, {master}, {}});
  return master;
}

}  // namespace

ParameterUpdate::ParameterUpdate(Builder& builder, const OptimizerOptions& options,
                                 const StepScalars& scalars, const ParameterGradient& pair)
    : builder_(builder),
      options_(options),
      scalars_(scalars),
      pair_(pair),
      weights_(options.master_weights ? add_master(builder, pair.parameter) : pair.parameter) {}

TensorId ParameterUpdate::state(const std::string& name) {
  return builder_.variable(builder_.graph().tensor(pair_.parameter).name + "." + name,
                           builder_.type(pair_.parameter), Role::kOptimizerState, {});
}

void ParameterUpdate::apply(std::string kind, const std::vector<TensorId>& states,
                            const std::vector<TensorId>& scalars, Attributes attributes) {
  std::vector<TensorId> inputs = {weights_, pair_.gradient};
  inputs.insert(inputs.end(), states.begin(), states.end());
  inputs.insert(inputs.end(), scalars.begin(), scalars.end());
  if (scalars_.factor) {
    inputs.push_back(*scalars_.factor);
  }
  std::vector<TensorId> updated = {weights_};
  updated.insert(updated.end(), states.begin(), states.end());
  attributes.set("scale", options_.gradient_scale);
  attributes.set("weight_decay", options_.weight_decay);
  builder_.update(std::move(kind), std::move(inputs), std::move(attributes), std::move(updated));
  if (weights_ != pair_.parameter) {
    builder_.update("assign", {pair_.parameter, weights_}, {}, {pair_.parameter});
  }
}

void ParameterUpdate::apply_adam(const std::string& kind) {
  apply(kind, {state("m"), state("v")}, {scalars_.rate, scalars_.step},
        {{"beta1", options_.beta1}, {"beta2", options_.beta2}, {"epsilon", options_.epsilon}});
}

void add_gradient_factor(Builder& builder, const OptimizerOptions& options,
                         const std::vector<ParameterGradient>& gradients, StepScalars& scalars) {
  std::vector<TensorId> tensors;
  std::ranges::transform(gradients, std::back_inserter(tensors), &ParameterGradient::gradient);
  const Attributes attributes{{"scale", options.gradient_scale}, {"max_norm", options.clip_norm}};
  if (scalars.loss_scale) {
    tensors.push_back(*scalars.loss_scale);
    scalars.factor =
        builder.add_one("loss_scale_factor", tensors, attributes, StepOutcome::kGradientFactor);
  } else if (options.clip_norm > 0) {
    scalars.factor =
        builder.add_one("clip_factor", tensors, attributes, StepOutcome::kGradientFactor);
  }
}

Status add_optimizer(Builder& builder, const OptimizerOptions& options,
                     const std::vector<ParameterGradient>& gradients, const StepScalars& scalars) {
  POPRUN_ASSIGN(const Optimizer optimizer, find_optimizer(options.name));
  for (const ParameterGradient& pair : gradients) {
    ParameterUpdate update(builder, options, scalars, pair);
    optimizer.update(update);
  }
  return builder.status();
}

}  // namespace poprun
