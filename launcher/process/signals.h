#pragma once

#include <array>
#include <csignal>
#include <vector>

#include <sys/types.h>

namespace poprun::launcher {

/// The signals that request something of this command. scancel, systemd and `kill` send them to all
/// processes of a job at once, in any order. The launcher alone obeys, and ends the others once
/// the job no longer needs them.
inline constexpr std::array kRequestSignals = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

/// The signals that end this command: SIGTERM, and SIGINT, SIGHUP and SIGUSR2 unless ignored.
/// `nohup` starts it with SIGHUP ignored, and a shell without job control starts what runs in its
/// background with SIGINT ignored; no handler may be installed for those. SIGUSR2 is Grid Engine's
/// notice before it kills a job.
std::vector<int> ending_signals();

/// Unblocks what the parent left blocked, as a program in Python or Java may: with SIGCHLD blocked
/// nobody would hear that mpirun has ended. To be called before any thread is started.
void unblock_signals();

/// fork(2), but the child has all signals blocked: the handlers of this process would take the
/// child's signals for its own.
pid_t fork_with_signals_blocked();

}  // namespace poprun::launcher
