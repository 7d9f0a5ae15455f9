#include "replica/device/device.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <utility>

#include "replica/device/calibration.h"

namespace poprun {
namespace {

Cycles cycles_at(const Device& device, Bytes bytes, double bytes_per_second) {
  const double seconds = static_cast<double>(bytes.count()) / bytes_per_second;
  return Cycles{static_cast<std::int64_t>(std::ceil(seconds * device.clock_hz))};
}

std::int64_t macs_per_cycle(const Device& device, Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kF32:
      return device.macs_per_cycle_f32;
    case Arithmetic::kF16:
      return device.macs_per_cycle_f16;
    case Arithmetic::kF16PartialsF16:
      return device.macs_per_cycle_f16_f16;
  }
  return device.macs_per_cycle_f32;
}

/// Number of IPU-Links within a pair for each link to the next pair.
constexpr double kPairLinks = 2;

/// Models a half of an all-reduce among the n replicas of an IPU-Link domain. Two replicas of one IPU are a pair.
DeviceTime half_in_domain(const Device& device, Bytes bytes, std::int64_t n, std::int64_t ipus_per_replica,
                          CollectiveHalf half) {
  DeviceTime time;
  if (n < 2) {
    return time;
  }
  const Ring ring = ring_of(bytes, n, ipus_per_replica, half);
  const double links = n * ipus_per_replica == 2 ? kPairLinks : 1;
  time.link = cycles_at(device, ring.fragment, links * device.link_bytes_per_second) * ring.steps;
  time.sync = time_of_link_sync(device, n * ipus_per_replica) * ring.steps;
  return time;
}

/// Models a ring of n IPU-Link domains over GW-Links. Each of the `halves` takes n - 1 steps of bytes / n.
DeviceTime ring_over_gateways(const Device& device, Bytes bytes, std::int64_t n, std::int64_t halves) {
  DeviceTime time;
  if (n < 2) {
    return time;
  }
  const std::int64_t steps = halves * (n - 1);
  time.link = cycles_at(device, Bytes{ceil_div(bytes.count(), n)}, device.gateway_bytes_per_second) * steps;
  time.sync = device.link_sync_cycles * steps;
  return time;
}

}  // namespace

DeviceTime time_of_work(const Device& device, const Work& work) {
  const auto per_tile = [&](std::int64_t amount, std::int64_t rate) { return ceil_div(amount, device.tiles * rate); };
  const std::int64_t vector_rate =
      work.arithmetic == Arithmetic::kF32 ? device.vector_f32_per_cycle : device.vector_f16_per_cycle;
  const std::int64_t arithmetic =
      per_tile(work.macs, macs_per_cycle(device, work.arithmetic)) + per_tile(work.vector_flops, vector_rate);
  const std::int64_t traffic = per_tile(work.memory_traffic.count(), device.load_bytes_per_cycle);
  return {.compute = Cycles{std::max(arithmetic, traffic)} + device.call_cycles * work.compute_sets +
                     Cycles{kUpdateOperation.cycles} * work.update_operations,
          .exchange = time_of_exchange(device, ceil_div(work.exchanged.count(), device.tiles)),
          .link = {},
          .host = {},
          .streaming = {},
          .sync = device.sync_cycles * work.compute_sets,
          .flops = 2 * work.macs + work.vector_flops};
}

Cycles time_of_exchange(const Device& device, std::int64_t bytes_of_tile) {
  return bytes_of_tile == 0
             ? Cycles{}
             : device.exchange_start_cycles + Cycles{ceil_div(bytes_of_tile, device.exchange_bytes_per_cycle)};
}

DeviceTime time_of_host_copy(const Device& device, Bytes bytes) {
  DeviceTime time;
  time.host = cycles_at(device, bytes, device.host_bytes_per_second);
  time.sync = device.link_sync_cycles;
  return time;
}

DeviceTime time_of_streaming_copy(const Device& device, Bytes bytes) {
  DeviceTime time;
  time.streaming = cycles_at(device, bytes, device.streaming_bytes_per_second);
  time.sync = device.link_sync_cycles;
  return time;
}

DeviceTime through_io_tiles(const Device& device, const DeviceTime& time, Bytes bytes) {
  POPRUN_CHECK(device.io_tiles > 0);
  DeviceTime through = time;
  (time.host > Cycles{} ? through.host : through.streaming) += time.sync;
  through.sync = device.sync_cycles;
  through.exchange = time_of_exchange(device, ceil_div(bytes.count(), std::min(device.tiles, device.io_tiles)));
  return through;
}

std::vector<std::uint32_t> link_route(std::uint32_t from, std::uint32_t to, std::uint32_t ipus) {
  POPRUN_CHECK(from < ipus && to < ipus);
  std::vector<std::uint32_t> route{from};
  for (std::uint32_t at = from; at != to; route.push_back(at)) {
    const std::uint32_t partner = at ^ 1U;
    if (at % 2 != to % 2 && partner < ipus) {
      at = partner;
    } else {
      at = at < to ? at + 2 : at - 2;
    }
  }
  return route;
}

DeviceTime time_of_copy(const Device& device, std::uint32_t ipus, const std::vector<LinkTransfer>& transfers) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, Bytes> carried;  // For each link and direction.
  std::map<std::uint32_t, Bytes> local;                              // For each IPU.
  for (const LinkTransfer& transfer : transfers) {
    if (transfer.from == transfer.to) {
      local[transfer.from] += transfer.bytes;
    }
    const std::vector<std::uint32_t> route = link_route(transfer.from, transfer.to, ipus);
    for (std::size_t hop = 1; hop < route.size(); ++hop) {
      carried[{route[hop - 1], route[hop]}] += transfer.bytes;
    }
  }
  DeviceTime time;
  for (const auto& [ipu, bytes] : local) {
    Work work;
    work.memory_traffic = bytes * 2;
    time.compute = std::max(time.compute, time_of_work(device, work).compute);
  }
  for (const auto& [link, bytes] : carried) {
    const double links = link.first / 2 == link.second / 2 ? kPairLinks : 1;
    time.link = std::max(time.link, cycles_at(device, bytes, links * device.link_bytes_per_second));
  }
  time.sync = carried.empty() ? device.sync_cycles : device.link_sync_cycles;
  return time;
}

namespace {

/// Models the halves within each domain, then one ring between the domains, shared by the IPUs of a replica.
DeviceTime hierarchical(const Device& device, Bytes bytes, std::int64_t replicas, std::int64_t ipus_per_replica,
                        std::initializer_list<CollectiveHalf> halves) {
  const std::int64_t replicas_per_domain =
      std::clamp<std::int64_t>(device.ipus_per_link_domain / ipus_per_replica, 1, replicas);
  DeviceTime time;
  for (const CollectiveHalf half : halves) {
    const DeviceTime inside = half_in_domain(device, bytes, replicas_per_domain, ipus_per_replica, half);
    time.link += inside.link;
    time.sync += inside.sync;
  }
  const DeviceTime between =
      ring_over_gateways(device, bytes * ipus_per_replica, ceil_div(replicas, replicas_per_domain),
                         static_cast<std::int64_t>(halves.size()));
  time.link += between.link;
  time.sync += between.sync;
  if (replicas > 1) {
    time.link += Cycles{static_cast<std::int64_t>(std::ceil(kCollectiveStart.seconds * device.clock_hz))};
  }
  return time;
}

}  // namespace

Ring ring_of(Bytes bytes, std::int64_t n, std::int64_t ipus_per_replica, CollectiveHalf half) {
  POPRUN_CHECK(n >= 2);
  const Bytes part{ceil_div(bytes.count(), n)};
  const Ring middle{RingMethod::kMeetInTheMiddle, n / 2, part};
  if (ipus_per_replica > 1) {
    return middle;
  }
  if (n == 2) {
    return {RingMethod::kClockwise, 1, part};
  }
  const bool scatters = half == CollectiveHalf::kScatter;
  const std::int64_t size = scatters ? bytes.count() : part.count();
  // The limits of the all-gather, which counts one member's part, are half as large.
  const std::int64_t limit = (n > 8 ? 39'845'888 : n > 4 ? 4'980'736 : 1'245'184) / (scatters ? 1 : 2);
  if (size < limit || n > 16) {
    return middle;
  }
  return {RingMethod::kBidirectionalPair, n - 1, Bytes{ceil_div(bytes.count(), 2 * n)}};
}

Cycles time_of_link_sync(const Device& device, std::int64_t ipus) {
  constexpr double kHopSeconds = 15e-9;
  const std::int64_t hops = 1 + ipus / 4;
  return Cycles{static_cast<std::int64_t>(std::ceil(kHopSeconds * device.clock_hz * static_cast<double>(hops) * 2))};
}

DeviceTime time_of_scatter(const Device& device, Bytes bytes, std::int64_t replicas, std::int64_t ipus_per_replica) {
  return hierarchical(device, bytes, replicas, ipus_per_replica, {CollectiveHalf::kScatter});
}

DeviceTime time_of_gather(const Device& device, Bytes bytes, std::int64_t replicas, std::int64_t ipus_per_replica) {
  return hierarchical(device, bytes, replicas, ipus_per_replica, {CollectiveHalf::kGather});
}

DeviceTime time_of_all_reduce(const Device& device, Bytes bytes, std::int64_t replicas, std::int64_t ipus_per_replica) {
  return hierarchical(device, bytes, replicas, ipus_per_replica, {CollectiveHalf::kScatter, CollectiveHalf::kGather});
}

}  // namespace poprun
