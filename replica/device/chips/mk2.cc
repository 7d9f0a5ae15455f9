#include "replica/device/chips/registry.h"

namespace poprun::chips {

/// Colossus Mk2 GC200, in an M2000. The host rate is that of four IPUs that stream at once. A lone IPU gets no more:
/// with all of the NIC's 12.5 GB/s, the small CNN of `validate` would be 1.6 times as fast as published.
Device mk2() {
  return {
      .name = "mk2",
      .clock_hz = 1.325e9,                        // [I] from the POD64 datasheet: 15.978 PF / 64 / tiles / 128.
      .tiles = 1472,                              // [D]
      .bytes_per_tile = Bytes{638976},            // [D] 624 KiB, Programmer's Guide.
      .interleaved_from = Bytes{212992},          // [2nd] Addresses 0x4C000 to 0x7FFFF are not interleaved.
      .macs_per_cycle_f32 = 16,                   // [I] 62.4 TFLOPS / tiles / clock / 2.
      .macs_per_cycle_f16 = 32,                   // [D] poplibs: 8 units x 4.
      .macs_per_cycle_f16_f16 = 64,               // [I] 249.66 TFLOPS / tiles / clock / 2.
      .vector_f32_per_cycle = 2,                  // [D] 64-bit datapath.
      .vector_f16_per_cycle = 4,                  // [D]
      .load_bytes_per_cycle = 8,                  // [D] 16 from interleaved memory, which is not assumed.
      .exchange_bytes_per_cycle = 4,              // [D]
      .sync_cycles = Cycles{126},                 // [2nd] Poplar Target getMaxIPUSyncDelay.
      .exchange_start_cycles = Cycles{160},       // [2nd] Poplar Target: about 160 per exchange fragment.
      .call_cycles = Cycles{288},                 // [2nd] Poplar Target: a local copy call.
      .link_sync_cycles = Cycles{600},            // [2nd] Poplar Target getGlobalSyncCycles.
      .link_bytes_per_second = 27.2e9,            // [I] 2 links x 16 GB/s x 0.85, one rail direction.
      .gateway_bytes_per_second = 25e9,           // [D] 2 x 100 Gb/s GW-Links.
      .host_bytes_per_second = 3.125e9,           // [D] 100 GbE over 4 IPUs.
      .streaming_bytes = Bytes{112'000'000'000},  // [D] "up to 112 GB per IPU" of an M2000.
      .streaming_bytes_per_second = 5e9,          // [2nd] 20 GB/s of an M2000's DDR4, over 4 IPUs.
  };
}

}  // namespace poprun::chips
