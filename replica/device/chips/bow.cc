#include "replica/device/chips/registry.h"

namespace poprun::chips {

/// Bow: the Mk2 die with a faster clock.
Device bow() {
  Device device = mk2();
  device.name = "bow";
  device.clock_hz = 1.85e9;  // [D] sample output of Graphcore's vertex_ipu_pi example.
  return device;
}

}  // namespace poprun::chips
