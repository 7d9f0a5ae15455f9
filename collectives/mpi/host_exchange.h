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

/// One replica's part in what its host exchanges with others: the host's replicas meet, and the
/// first replica of each process carries over the wire, for all of the process.
///
/// Errors, from any call: those of Rendezvous and HostWire. The first one of any replica is that of
/// all replicas of the host.
///
/// Threads: belongs to one.
class HostExchange {
 public:
  /// `plan` and `rendezvous`, that of the host's replicas, must outlive it. `channel` as HostWire
  /// takes it; `deadline` of each wait.
  HostExchange(std::shared_ptr<MpiLink> link, const HostPlan& plan, int channel,
               Rendezvous& rendezvous, bool carries, std::chrono::milliseconds deadline);

  [[nodiscard]] bool carries() const { return carries_; }

  /// Whether this replica speaks for its host.
  [[nodiscard]] bool leads() const { return carries_ && wire_.leads(); }

  /// To post to. Requires: `carries`.
  [[nodiscard]] HostWire& wire() { return wire_; }

  /// The rendezvous has opened a call; what follows belongs to it.
  void begin_call() { call_ = rendezvous_->call_name(); }

  /// Waits for all replicas of the host, and longer than the deadline where they wait for the wire.
  Status meet();

  /// Waits for the oldest post, where this replica carries.
  Status arrive();

  /// Passes a call's outcome on, and tells the other hosts of a failure: every replica does, since
  /// the one that carries may be the one that is missing.
  Status settle(Status status);

 private:
  Rendezvous* rendezvous_;
  HostWire wire_;
  bool carries_;
  std::chrono::milliseconds deadline_;
  std::string call_;   ///< "all-reduce 17".
  bool told_ = false;  ///< That it has failed, to the other hosts.
};

}  // namespace poprun::collectives
