#include "replica/compiler/optimizers/optimizers.h"

#include <fmt/format.h>

namespace poprun {

Status add_optimizer(Builder& builder, const OptimizerOptions& options,
                     const std::vector<ParameterGradient>& gradients, TensorId rate) {
  if (options.name != "sgd" && options.name != "momentum") {
    return fail(ErrorCode::kUsage,
                fmt::format("training.optimizer: no optimiser is called '{}'; there are: momentum, "
                            "sgd",
                            options.name));
  }
  for (const auto& [parameter, gradient] : gradients) {
    const Attributes attributes{{"scale", options.gradient_scale},
                                {"weight_decay", options.weight_decay}};
    if (options.name == "sgd") {
      builder.update("sgd", {parameter, gradient, rate}, attributes, {parameter});
      continue;
    }
    const std::string name = builder.graph().tensor(parameter).name + ".momentum";
    const TensorId velocity =
        builder.variable(name, builder.type(parameter), Role::kOptimizerState, {});
    Attributes with_momentum = attributes;
    with_momentum.set("momentum", options.momentum);
    builder.update("momentum", {parameter, gradient, velocity, rate}, with_momentum,
                   {parameter, velocity});
  }
  return builder.status();
}

}  // namespace poprun
