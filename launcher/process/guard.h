#pragma once

#include <sys/types.h>

#include "collectives/session/session.h"
#include "launcher/process/process_handle.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// Starts a process that outlives this one, should it be killed, to end mpirun in order: within 3 s
/// by itself, then with one SIGTERM, 5 s later with SIGKILL. To be started before mpirun runs
/// (Child::Program::before), so that there is no moment without it. A child of this process, to be
/// killed and reaped once mpirun has ended. It keeps the lock of the job's `folder`, and removes it
/// with what an mpirun that died left in it. Belongs to the thread that starts it (see Child).
/// Requires: `mpirun` is a child of this process that was not reaped.
///
/// mpirun removes its folders and shared memory only when it is asked once. The kernel's own signal
/// on the death of a parent (Child::Program::death_signal) comes once for each of its threads, and
/// mpirun takes the second one for "at once, without cleaning up".
///
/// Errors
///   kHostResources  no process could be started, or no descriptor was left; says why.
Result<ProcessHandle> start_guard(pid_t mpirun, collectives::JobFolder& folder);

}  // namespace poprun::launcher
