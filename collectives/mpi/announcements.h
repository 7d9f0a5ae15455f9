#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "collectives/local/call.h"
#include "collectives/mpi/host_plan.h"
#include "collectives/mpi/host_wire.h"

namespace poprun::collectives {

/// Few bytes that go along with the announcement of a call.
struct Payload {
  std::vector<std::size_t> bytes;            ///< By host.
  std::function<void(std::byte* to)> write;  ///< Those of this host.
};

/// What the hosts of a channel tell one another before a collective, in memory that all replicas of
/// a host share:   | calls of host 0's replicas, room for a payload | those of host 1 | ..
///
/// Threads: as the replicas of a host meet.
class Announcements {
 public:
  /// Memory that they take.
  static std::size_t bytes_needed(const HostPlan& plan);

  /// `memory` and `plan` must outlive it, and the memory also what has failed on the wire.
  Announcements(std::byte* memory, const HostPlan& plan) : memory_(memory), plan_(&plan) {}

  /// True where payloads of so many bytes, by host, may go along: few enough that a phase on the
  /// wire of their own would take longer.
  [[nodiscard]] bool fit(std::span<const std::size_t> payloads) const;

  /// Begins to exchange the calls of this host's replicas, and what it has for payload, which must
  /// fit, for those of all others. To be called by leaders, who then wait for the wire.
  void post(HostWire& wire, std::span<const Call> calls, const Payload* payload) const;

  /// All calls, by replicas' indices.
  [[nodiscard]] std::vector<Call> calls() const;

  /// What came along from a host. Valid until this replica announces its next call.
  [[nodiscard]] const std::byte* payload_of(std::size_t host) const { return room_of(host); }

 private:
  [[nodiscard]] std::byte* calls_of(std::size_t host) const;
  [[nodiscard]] std::byte* room_of(std::size_t host) const;

  std::byte* memory_;
  const HostPlan* plan_;
};

}  // namespace poprun::collectives
