#pragma once

#include "proto/coordinator.pb.h"
#include "replica/base/error.h"

/// An instance's dealings with its process and the host on which Open MPI started it.
namespace poprun {

/// Removes what dead jobs left on this host. Only the first process of a host does, as the launcher does on its own.
void remove_leftovers();

/// Ends the process after the launcher is lost, and Open MPI's daemon with it, which nobody else needs.
[[noreturn]] void leave_without_launcher(ErrorCode code);

/// Checks the folder where Open MPI's vader will have its memory; the first process of a host does so for all of them.
/// Errors: kHostResources.
Status check_room_for_mpi();

/// The request to join, which names what this instance computes with.
proto::JoinRequest join_request();

/// Ignores signals that end a job. scancel, systemd and `kill` signal all processes of a job at once, but only the
/// launcher obeys: it has the replicas stop and save, and kills what is left.
void leave_signals_to_launcher();

}  // namespace poprun
