#include "replica/compiler/optimizers/optimizers.h"

namespace poprun {

Optimizer adamw_optimizer() {
  return {"adamw", [](ParameterUpdate& u) { u.apply_adam("adamw"); }};
}

}  // namespace poprun
