#include "replica/device/chips/registry.h"

namespace poprun::chips {

/// Colossus Mk1 GC2. Link, gateway and host rates are those of Mk2; none have been published for Mk1.
Device mk1() {
  Device device = mk2();
  device.name = "mk1";
  device.clock_hz = 1.6e9;                // [D]
  device.tiles = 1216;                    // [D]
  device.bytes_per_tile = Bytes{262144};  // [D]
  device.macs_per_cycle_f32 = 8;          // [I] 31.1 TFLOPS / tiles / clock / 2.
  device.macs_per_cycle_f16_f16 = 32;     // [I] 124.5 TFLOPS / tiles / clock / 2.
  return device;
}

}  // namespace poprun::chips
