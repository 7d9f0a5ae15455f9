#include "replica/compiler/planner/target.h"

#include "replica/base/error.h"
#include "replica/device/product.h"

namespace poprun::planner {

Target target_of(const Device& device, Arithmetic arithmetic) {
  POPRUN_CHECK(device.tiles > 0);
  Target target;
  target.tiles = device.tiles;
  target.bytes_per_tile = device.bytes_per_tile;
  target.exchange_bytes_per_cycle = device.exchange_bytes_per_cycle;
  target.load_bytes_per_cycle = device.load_bytes_per_cycle;
  target.element = element_bytes(arithmetic);
  target.partial = partial_bytes(arithmetic);
  switch (arithmetic) {
    case Arithmetic::kF32:
      target.macs_per_cycle = device.macs_per_cycle_f32;
      break;
    case Arithmetic::kF16:
      target.macs_per_cycle = device.macs_per_cycle_f16;
      break;
    case Arithmetic::kF16PartialsF16:
      target.macs_per_cycle = device.macs_per_cycle_f16_f16;
      break;
  }
  const bool f32 = arithmetic == Arithmetic::kF32;
  target.columns = f32 ? target.macs_per_cycle : target.macs_per_cycle / 4;
  target.block_inputs = f32 ? 8 : 16;
  target.vector_width = f32 ? device.vector_f32_per_cycle : device.vector_f16_per_cycle;
  return target;
}

}  // namespace poprun::planner
