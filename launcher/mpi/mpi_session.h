#pragma once

#include <cstdint>

#include <sys/types.h>

#include "replica/base/error.h"

/// What Open MPI 4.1 keeps on this machine while a job runs (orte/util/session_dir.c,
/// opal/mca/btl/vader/btl_vader_component.c):
///
///   TMPDIR/ompi.HOST.UID/pid.PID/            files that mpirun shares with its ranks
///   TMPDIR/ompi.HOST.UID/pid.PID/contact.txt begins with the decimal number of job 0
///   /dev/shm/vader_segment.HOST.UID.JOB.RANK JOB in hexadecimal; the ranks are job 1
namespace poprun::launcher {

/// Errors
///   kHostResources  the disk of that folder has no room for the session of so many instances,
///                   which die of it one by one.
Status check_room_for_mpi_session(std::uint32_t instances);

/// Removes what a dead `mpirun` and its ranks left. One that ended in order left nothing, and
/// nothing is touched then.
void remove_mpi_session(pid_t mpirun);

}  // namespace poprun::launcher
