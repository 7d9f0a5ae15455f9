#include "replica/compiler/planner/cost.h"

namespace poprun::planner {

Cycles exchange_cycles(const Target& target, Bytes bytes, bool shared) {
  const std::int64_t rate =
      target.exchange_bytes_per_cycle * (shared ? target.tiles_per_exchange_bus : 1);
  return Cycles{ceil_div(bytes.count(), rate)};
}

}  // namespace poprun::planner
