#include "replica/compiler/optimizers/optimizers.h"

namespace poprun {

Optimizer sgd_optimizer() {
  return {"sgd", [](ParameterUpdate& u) { u.apply("sgd", {}, {u.scalars().rate}, {}); }};
}

}  // namespace poprun
