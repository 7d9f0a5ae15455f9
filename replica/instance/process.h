#pragma once

#include "proto/coordinator.pb.h"
#include "replica/base/error.h"

/// An instance's dealings with its process and the host on which Open MPI started it.
namespace poprun {

/// Removes leftovers of dead jobs from this host, on its first process only; the launcher cleans its own host.
void remove_leftovers();

/// Ends the process after the launcher is lost, and with it Open MPI's daemon, which no other process needs.
[[noreturn]] void leave_without_launcher(ErrorCode code);

/// Checks the folder where Open MPI's vader will have its memory; the first process of a host does so for all of them.
/// Errors: kHostResources.
Status check_room_for_mpi();

/// Returns the request to join, with this instance's instruction sets and numeric libraries.
proto::JoinRequest join_request();

/// Ignores signals that end a job. scancel, systemd and `kill` signal all processes of a job at once, but only the
/// launcher obeys: it has the replicas stop and save, and kills what is left.
void leave_signals_to_launcher();

}  // namespace poprun
