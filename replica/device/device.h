#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/units.h"

/// Describes IPUs and Pods by numbers, and contains the formulas that convert work to device time.
///
/// Every number names its source: [D] a published document or datasheet, [I] derived from published numbers, [2nd]
/// second-hand. Numbers that are fitted to measurements are in calibration.h.
namespace poprun {

/// One kind of chip with its links. Each kind has its own file in chips/.
struct Device {
  std::string name;
  double clock_hz = 0;        ///< Clock of the tiles.
  std::int64_t tiles = 0;     ///< Tiles that compute.
  std::int64_t io_tiles = 0;  ///< Additional tiles that only transfer data; see through_io_tiles.
  Bytes bytes_per_tile;
  Bytes interleaved_from;                   ///< Offset of a tile's interleaved region; 0 if unknown.
  std::int64_t macs_per_cycle_f32 = 0;      ///< One tile's matrix unit.
  std::int64_t macs_per_cycle_f16 = 0;      ///< Products of float16 numbers, summed in float32.
  std::int64_t macs_per_cycle_f16_f16 = 0;  ///< Products of float16 numbers, summed in float16.
  std::int64_t vector_f32_per_cycle = 0;    ///< Elementwise float operations of one tile.
  std::int64_t vector_f16_per_cycle = 0;
  std::int64_t load_bytes_per_cycle = 0;      ///< Between a tile's memory and its registers.
  std::int64_t exchange_bytes_per_cycle = 0;  ///< Received by one tile from other tiles.
  Cycles sync_cycles;                         ///< One synchronisation of all tiles of an IPU.
  Cycles exchange_start_cycles;               ///< Start of one exchange between tiles, before its first byte.
  Cycles call_cycles;                         ///< Call of one compute set's vertices by a tile's supervisor.
  Cycles link_sync_cycles;                    ///< One synchronisation of linked IPUs.
  double link_bytes_per_second = 0;           ///< Usable rate of an IPU-Link rail in one direction.
  double gateway_bytes_per_second = 0;        ///< A machine's GW-Links in one direction.
  double host_bytes_per_second = 0;           ///< One IPU's share of its host link.
  Bytes streaming_bytes;                      ///< Streaming Memory of one IPU.
  double streaming_bytes_per_second = 0;      ///< To or from Streaming Memory; one IPU's share.
  std::int64_t ipus_per_link_domain = 64;     ///< Largest IPU-Link domain.

  /// Returns the size of one IPU's In-Processor Memory, exactly.
  [[nodiscard]] Bytes capacity() const { return bytes_per_tile * (tiles + io_tiles); }

  [[nodiscard]] Bytes compute_capacity() const { return bytes_per_tile * tiles; }
};

/// Returns the device with that name. Errors: kUsage if there is none; the message suggests names.
Result<Device> find_device(std::string_view name);

/// Returns the names of all devices, sorted.
std::vector<std::string> device_names();

/// The types in which the matrix and vector units compute.
enum class Arithmetic : std::uint8_t {
  kF32,
  kF16,             ///< float16 numbers, partial sums in float32.
  kF16PartialsF16,  ///< float16 numbers and partial sums.
};

/// The work of one operation, before any device is known.
struct Work {
  std::int64_t macs = 0;          ///< Multiply-accumulates on the matrix units.
  std::int64_t vector_flops = 0;  ///< Operations on the vector units.
  Bytes memory_traffic;           ///< Read and written in tile memory.
  Bytes exchanged;                ///< Moved between tiles.
  std::int64_t compute_sets = 1;  ///< Each costs a synchronisation and a call.
  /// Operations that a framework would run for an optimiser's update; each costs kUpdateOperation (calibration.h).
  std::int64_t update_operations = 0;
  Arithmetic arithmetic = Arithmetic::kF32;
};

/// The device time of some work, for each activity of the chip.
struct DeviceTime {
  Cycles compute;
  Cycles exchange;
  Cycles link;
  Cycles host;
  Cycles streaming;  ///< To and from Streaming Memory.
  Cycles sync;
  std::int64_t flops = 0;  ///< A multiply-add counts as two.

  [[nodiscard]] Cycles total() const { return compute + exchange + link + host + streaming + sync; }
};

/// Returns the time of an operation whose work is spread evenly over all tiles of one IPU:
///   compute  = max(macs / matrix rate + vector_flops / vector rate, traffic / load rate), per tile,
///              + compute_sets * call_cycles + update_operations * kUpdateOperation
///   exchange = exchanged / exchange rate, per tile, + exchange_start_cycles if anything is exchanged
///   sync     = compute_sets * sync_cycles
/// The bulk-synchronous order (sync, exchange, compute) is the IPU's execution model [D].
DeviceTime time_of_work(const Device& device, const Work& work);

/// Returns the time of an exchange in which the tile that receives most receives this many bytes; 0 if it receives
/// none.
Cycles time_of_exchange(const Device& device, std::int64_t bytes_of_tile);

/// Returns the time to copy `bytes` between the host and one IPU.
DeviceTime time_of_host_copy(const Device& device, Bytes bytes);

/// Returns the time to copy `bytes` between Streaming Memory and one IPU. All IPUs of a machine may copy at the same
/// time.
DeviceTime time_of_streaming_copy(const Device& device, Bytes bytes);

/// Converts `time`, the time of a transfer of `bytes` to or from the host or Streaming Memory, to the time if the IPU's
/// I/O tiles make the transfer. The I/O tiles are busy for the host or streaming time, which includes synchronising
/// with the host. The other tiles synchronise with the I/O tiles and exchange the bytes as fast as the smaller group of
/// tiles can send or receive [I]. Requires: the device has I/O tiles.
DeviceTime through_io_tiles(const Device& device, const DeviceTime& time, Bytes bytes);

/// A transfer of bytes from one IPU of a replica to another, or within one IPU.
struct LinkTransfer {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  Bytes bytes;
};

/// Returns the IPUs that a transfer passes on its way through a replica of `ipus` IPUs, including both ends.
///
///     1 -- 3 -- 5      IPUs 2k and 2k + 1 are the pairs of a ladder. A transfer crosses its pair
///     |    |    |      first and then goes from pair to pair (poplibs, lib/poplibs_test/Util.cpp) [D].
///     0 -- 2 -- 4 -- 6
///
/// If the number of IPUs is odd, transfers from or to the last one cross at the next pair [I]. Requires: both ends are
/// below `ipus`.
std::vector<std::uint32_t> link_route(std::uint32_t from, std::uint32_t to, std::uint32_t ipus);

/// Returns the time of transfers that begin together in a replica of `ipus` IPUs, which is the time of the busiest
/// link. A pair's link carries twice as much as a link from pair to pair (poplibs, lib/poplibs_test/Util.cpp) [D].
/// Transfers within an IPU are copied by its tiles.
DeviceTime time_of_copy(const Device& device, std::uint32_t ipus, const std::vector<LinkTransfer>& transfers);

/// The halves of an all-reduce.
enum class CollectiveHalf : std::uint8_t { kScatter, kGather };

/// How the n members of a ring exchange `bytes` in one half of an all-reduce.
enum class RingMethod : std::uint8_t {
  kClockwise,         ///< n - 1 steps of one nth in one direction.
  kMeetInTheMiddle,   ///< n / 2 steps, rounded down, of one nth in both directions at once.
  kBidirectionalPair  ///< Two rings in opposite directions with a half of the data each: n - 1 steps.
};

struct Ring {
  RingMethod method = RingMethod::kClockwise;
  std::int64_t steps = 0;
  Bytes fragment;  ///< Sent by each member in each step and direction.
};

/// Returns the ring that poplibs chooses for n replicas of `ipus_per_replica` IPUs, each of which has `bytes` before a
/// scatter or after a gather (lib/popops/Collectives.cpp, 2021, for Pods with a torus of IPU-Links) [D]. Requires: n
/// > 1.
Ring ring_of(Bytes bytes, std::int64_t n, std::int64_t ipus_per_replica, CollectiveHalf half);

/// Returns the time of one synchronisation of `ipus` linked IPUs: 15 ns for each of 1 + ipus / 4 hops, there and back
/// (poplibs' IPUModel) [D].
Cycles time_of_link_sync(const Device& device, std::int64_t ipus);

/// Return the times of the halves of an all-reduce: of a ring reduce-scatter, and of a ring all-gather to `bytes`.
DeviceTime time_of_scatter(const Device& device, Bytes bytes, std::int64_t replicas, std::int64_t ipus_per_replica);
DeviceTime time_of_gather(const Device& device, Bytes bytes, std::int64_t replicas, std::int64_t ipus_per_replica);

/// Returns the time of an all-reduce of `bytes` over `replicas` replicas of `ipus_per_replica` IPUs each: a
/// reduce-scatter and an all-gather over IPU-Links, by the rings that poplibs chooses, each of whose steps begins with
/// a synchronisation of the domain. Beyond one IPU-Link domain, the rings are hierarchical, and the domains' sums are
/// all-reduced over GW-Links (poplibs, lib/popops/Collectives.cpp, and the Pod reference designs). One ring of one
/// machine's GW-Links per domain carries the sums of all shards and all IPUs of a replica [I]: MLPerf's steps on 128
/// and 256 IPUs are longer than on 64 by this ring's time.
DeviceTime time_of_all_reduce(const Device& device, Bytes bytes, std::int64_t replicas, std::int64_t ipus_per_replica);

}  // namespace poprun
