#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "collectives/local/call.h"
#include "collectives/mpi/host_plan.h"
#include "collectives/mpi/host_wire.h"

namespace poprun::collectives {

/// A small payload that travels with the announcement of a call.
struct Payload {
  std::vector<std::size_t> bytes;            ///< By host.
  std::function<void(std::byte* to)> write;  ///< Writes this host's payload.
};

/// What the hosts of a channel tell one another before a collective, in memory that all replicas of
/// a host share:   | calls of host 0's replicas, room for a payload | the same of host 1 | ..
///
/// Threads: synchronised by the meetings of the host's replicas.
class Announcements {
 public:
  /// The memory they need.
  static std::size_t bytes_needed(const HostPlan& plan);

  /// `memory` and `plan` must outlive it; the memory must also outlive any failed transfer.
  Announcements(std::byte* memory, const HostPlan& plan) : memory_(memory), plan_(&plan) {}

  /// True if payloads of these sizes, by host, may travel with the announcements: small enough that
  /// a separate phase on the wire would take longer.
  [[nodiscard]] bool fit(std::span<const std::size_t> payloads) const;

  /// Begins to exchange the calls of this host's replicas, and its payload if any, with those of
  /// all other hosts. The payload must fit. Called by the leaders, who then wait for the wire.
  void post(HostWire& wire, std::span<const Call> calls, const Payload* payload) const;

  /// All calls, by replica index.
  [[nodiscard]] std::vector<Call> calls() const;

  /// The payload that came from `host`. Valid until this replica announces its next call.
  [[nodiscard]] const std::byte* payload_of(std::size_t host) const { return room_of(host); }

 private:
  [[nodiscard]] std::byte* calls_of(std::size_t host) const;
  [[nodiscard]] std::byte* room_of(std::size_t host) const;

  std::byte* memory_;
  const HostPlan* plan_;
};

}  // namespace poprun::collectives
