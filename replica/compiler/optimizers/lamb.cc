#include "replica/compiler/optimizers/optimizers.h"

namespace poprun {

Optimizer lamb_optimizer() {
  return {"lamb", [](ParameterUpdate& u) { u.apply_adam("lamb"); }};
}

}  // namespace poprun
