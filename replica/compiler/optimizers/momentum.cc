#include "replica/compiler/optimizers/optimizers.h"

namespace poprun {

Optimizer momentum_optimizer() {
  return {"momentum", [](ParameterUpdate& u) {
            u.apply("momentum", {u.state("momentum")}, {u.scalars().rate},
                    {{"momentum", u.options().momentum},
                     {"nesterov", std::int64_t{u.options().nesterov ? 1 : 0}}});
          }};
}

}  // namespace poprun
