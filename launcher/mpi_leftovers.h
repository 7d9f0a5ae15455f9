#pragma once

#include <sys/types.h>

namespace poprun::launcher {

/// Removes what a dead `mpirun` and its ranks left on this machine: its session folder and the
/// ranks' shared memory. An mpirun that ended in order left nothing, and nothing is touched then.
///
/// Where Open MPI 4.1 puts them (orte/util/session_dir.c,
/// opal/mca/btl/vader/btl_vader_component.c):
///
///   TMPDIR/ompi.HOST.UID/pid.PID/contact.txt         begins with the decimal number of job 0
///   /dev/shm/vader_segment.HOST.UID.JOB.RANK         JOB in hexadecimal; the ranks are job 1
void remove_mpi_leftovers(pid_t mpirun);

}  // namespace poprun::launcher
