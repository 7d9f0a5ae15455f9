#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "collectives/local/rendezvous.h"
#include "collectives/mpi/host_plan.h"
#include "collectives/mpi/host_wire.h"
#include "collectives/mpi/mpi_link.h"
#include "replica/base/error.h"

namespace poprun::collectives {

/// One replica's part in the exchange between its host and others: the host's replicas meet, and
/// the first replica of each process carries data over the wire for all replicas of that process.
///
/// Errors, from any call: those of Rendezvous and HostWire. The first error of any replica is
/// returned to all replicas of the host.
///
/// Threads: belongs to one thread.
class HostExchange {
 public:
  /// `plan` and `rendezvous`, where the host's replicas meet, must outlive it. `channel` is passed
  /// to HostWire; `deadline` applies to each wait.
  HostExchange(std::shared_ptr<MpiLink> link, const HostPlan& plan, int channel,
               Rendezvous& rendezvous, bool carries, std::chrono::milliseconds deadline);

  [[nodiscard]] bool carries() const { return carries_; }

  /// Whether this replica speaks for its host.
  [[nodiscard]] bool leads() const { return carries_ && wire_.leads(); }

  /// The wire to post to. Requires: this replica carries.
  [[nodiscard]] HostWire& wire() { return wire_; }

  /// Notes that the rendezvous has opened a call, to which everything that follows belongs.
  void begin_call() { call_ = rendezvous_->call_name(); }

  /// Waits for all replicas of the host, longer than the deadline while they wait for the wire.
  Status meet();

  /// Waits for the oldest post if this replica carries.
  Status arrive();

  /// Passes a call's outcome on and tells the other hosts of a failure. Every replica calls it,
  /// since the one that carries may be the one that is missing.
  Status settle(Status status);

 private:
  Rendezvous* rendezvous_;
  HostWire wire_;
  bool carries_;
  std::chrono::milliseconds deadline_;
  std::string call_;   ///< "all-reduce 17".
  bool told_ = false;  ///< Whether the other hosts know of the failure.
};

}  // namespace poprun::collectives
