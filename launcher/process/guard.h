#pragma once

#include <chrono>

#include <sys/types.h>

#include "collectives/session/session.h"
#include "launcher/process/process_handle.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// Starts a process that outlives this one, should it be killed, to end mpirun in order: within 3 s
/// by itself, then by the end of its children (kill_children), 5 s later with SIGKILL. To be
/// started before mpirun runs (Child::Program::before), so that there is no moment without it. A
/// child of this process, to be killed and reaped once mpirun has ended. It keeps the lock of the
/// job's `folder`, and removes it with what an mpirun that died left in it. Belongs to the thread
/// that starts it (see Child). Requires: `mpirun` is a child of this process that was not reaped.
///
/// Errors
///   kHostResources  no process could be started, or no descriptor was left; says why.
Result<ProcessHandle> start_guard(pid_t mpirun, collectives::JobFolder& folder);

/// SIGKILL to the children of `mpirun`, its replicas here and its remote shells. It takes their end
/// for a failure of the job: it ends all others and removes its folders and shared memory. It hears
/// no SIGTERM (signals.h), and may have no child yet: to be called again until it has ended.
void kill_children(pid_t mpirun);

constexpr std::chrono::milliseconds kKillAgain{100};

}  // namespace poprun::launcher
