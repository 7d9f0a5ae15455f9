#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/local/call.h"
#include "collectives/local/rendezvous.h"
#include "collectives/mpi/host_plan.h"
#include "collectives/mpi/host_wire.h"
#include "replica/base/error.h"

namespace poprun::collectives {

/// A small payload that travels with the announcement of a call.
struct Payload {
  std::vector<std::size_t> bytes;            ///< For each host.
  std::function<void(std::byte* to)> write;  ///< Writes this host's payload.
};

/// The announcements that a channel's hosts exchange before a collective, in memory that all replicas of a host share:
///
///   | calls of host 0's replicas, room for a payload | the same of host 1 | ..
///
/// Threads: synchronised by the meetings of the host's replicas.
class Announcements {
 public:
  static std::size_t bytes_needed(const HostPlan& plan);

  /// `memory` and `plan` must outlive this object. The memory must also outlive any failed transfer.
  Announcements(std::byte* memory, const HostPlan& plan) : memory_(memory), plan_(&plan) {}

  /// Returns whether payloads of these sizes, one per host, are small enough to travel with the announcements. For
  /// such payloads, a separate phase would be slower.
  [[nodiscard]] bool fit(std::span<const std::size_t> payloads) const;

  /// Begins to exchange the calls of this host's replicas, and this host's payload if it has one, with all other hosts.
  /// The payload must fit. The leaders call this and then wait for the wire.
  void post(HostWire& wire, std::span<const Call> calls, const Payload* payload) const;

  /// All calls, in the order of the replica indices.
  [[nodiscard]] std::vector<Call> calls() const;

  /// The payload that came from `host`. Valid until this replica announces its next call.
  [[nodiscard]] const std::byte* payload_of(std::size_t host) const { return room_of(host); }

 private:
  [[nodiscard]] std::byte* calls_of(std::size_t host) const;
  [[nodiscard]] std::byte* room_of(std::size_t host) const;

  std::byte* memory_;
  const HostPlan* plan_;
};

/// One replica's part in the exchange between its host and the other hosts: the host's replicas meet, and the first
/// replica of each process carries data over the wire for all replicas of that process. Belongs to one thread.
///
/// Errors, from any call: those of Rendezvous and HostWire. All replicas of the host get the first one.
class HostExchange {
 public:
  /// `plan` and `rendezvous`, at which the host's replicas meet, must outlive this object. `channel` is the channel
  /// number for HostWire. `deadline` limits each wait.
  HostExchange(std::shared_ptr<MpiLink> link, const HostPlan& plan, int channel, Rendezvous& rendezvous, bool carries,
               std::chrono::milliseconds deadline);

  [[nodiscard]] bool carries() const { return carries_; }

  /// Returns whether this replica sends its host's announcements.
  [[nodiscard]] bool leads() const { return carries_ && wire_.leads(); }

  /// The wire to post to. Requires: this replica carries.
  [[nodiscard]] HostWire& wire() { return wire_; }

  /// Records the call that the rendezvous has opened; all later steps belong to it.
  void begin_call() { call_ = rendezvous_->call_name(); }

  /// Waits for all replicas of the host. If they are waiting for the wire, this may take longer than the deadline.
  Status meet();

  /// Waits for the oldest post if this replica carries.
  Status arrive();

  /// Returns a call's outcome, and tells other hosts about a failure. Every replica calls this, because the replica
  /// that carries data may be missing.
  Status settle(Status status);

 private:
  Rendezvous* rendezvous_;
  HostWire wire_;
  bool carries_;
  std::chrono::milliseconds deadline_;
  std::string call_;   ///< "all-reduce 17".
  bool told_ = false;  ///< Whether the other hosts have been told of the failure.
};

}  // namespace poprun::collectives
