#include "replica/compiler/optimizers/optimizers.h"

namespace poprun {

Optimizer adam_optimizer() {
  return {"adam", [](ParameterUpdate& u) { u.apply_adam("adam"); }};
}

}  // namespace poprun
