#include "replica/compiler/planner/cost.h"

namespace poprun::planner {

/// 5/4 of the time to load the bytes, and their exchange (ipu.md 2.5).
Cycles copy_cycles(const Target& target, Bytes bytes) {
  return Cycles{ceil_div(bytes.count() * 5, 4 * target.load_bytes_per_cycle)} +
         exchange_cycles(target, bytes, false);
}

}  // namespace poprun::planner
