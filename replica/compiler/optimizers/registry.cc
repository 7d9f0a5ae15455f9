#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "replica/compiler/optimizers/optimizers.h"

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

TensorId add_clipping(Builder& builder, const OptimizerOptions& options,
                      const std::vector<ParameterGradient>& gradients) {
  std::vector<TensorId> tensors;
  for (const ParameterGradient& pair : gradients) {
    tensors.push_back(pair.gradient);
  }
  return builder.add_one("clip_factor", tensors,
                         {{"scale", options.gradient_scale}, {"max_norm", options.clip_norm}},
                         "clip-factor");
}

}  // namespace

TensorId ParameterUpdate::state(const std::string& name) {
  return builder_.variable(builder_.graph().tensor(pair_.parameter).name + "." + name,
                           builder_.type(pair_.parameter), Role::kOptimizerState, {});
}

void ParameterUpdate::apply(std::string kind, const std::vector<TensorId>& states,
                            const std::vector<TensorId>& scalars, Attributes attributes) {
  std::vector<TensorId> inputs = {pair_.parameter, pair_.gradient};
  inputs.insert(inputs.end(), states.begin(), states.end());
  inputs.insert(inputs.end(), scalars.begin(), scalars.end());
  if (scalars_.factor) {
    inputs.push_back(*scalars_.factor);
  }
  std::vector<TensorId> updated = {pair_.parameter};
  updated.insert(updated.end(), states.begin(), states.end());
  attributes.set("scale", options_.gradient_scale);
  attributes.set("weight_decay", options_.weight_decay);
  builder_.update(std::move(kind), std::move(inputs), std::move(attributes), std::move(updated));
}

void ParameterUpdate::apply_adam(const std::string& kind) {
  apply(kind, {state("m"), state("v")}, {scalars_.rate, scalars_.step},
        {{"beta1", options_.beta1}, {"beta2", options_.beta2}, {"epsilon", options_.epsilon}});
}

Status add_optimizer(Builder& builder, const OptimizerOptions& options,
                     const std::vector<ParameterGradient>& gradients, StepScalars scalars) {
  POPRUN_ASSIGN(const Optimizer optimizer, find_optimizer(options.name));
  if (options.clip_norm > 0) {
    scalars.factor = add_clipping(builder, options, gradients);
  }
  for (const ParameterGradient& pair : gradients) {
    ParameterUpdate update(builder, options, scalars, pair);
    optimizer.update(update);
  }
  return builder.status();
}

}  // namespace poprun
