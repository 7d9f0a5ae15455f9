#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "replica/base/error.h"
#include "replica/base/units.h"

/// Ends the process with one line and exit code 69, instead of an abort, if it reaches a limit of the host.
namespace poprun {

/// Installs a terminate handler for exceptions that libraries throw if memory, threads or file descriptors run out: it
/// prints one line that starts with `program` and names the limit, and exits. Other exceptions still abort. Call first
/// in main.
void end_in_a_line_at_limits(std::string_view program);

/// Turns core dumps off for this process and its children, because their memory contains the job's token. Programs that
/// receive core dumps through a pipe (core(5)) get no memory either.
void leave_no_core_dumps();

/// Checks whether this process and its children can start `threads` more threads or processes, by starting that many
/// threads for a moment. This takes every limit (ulimit -u, a control group's pids.max) at every level into account.
/// Without this check, libraries that cannot start a thread would hang, abort or report a different problem. Cost:
/// about 20 us per thread. Errors: kHostResources if the threads cannot all be started; the message says what needs
/// them (`purpose`).
Status check_room_for_threads(std::size_t threads, std::string_view purpose);

struct FreeMemory {
  Bytes bytes;
  std::string source;  ///< Origin of the number, such as "MemAvailable and SwapFree of /proc/meminfo".
};

/// Returns the memory that this process may still use, which is the minimum over the machine and its control groups
/// (version 1 or 2). Reclaimable file caches count as free. The result is empty if no source is available. In tests,
/// `root` replaces `/`.
std::optional<FreeMemory> free_memory(const std::string& root = "");

/// Makes the C library keep freed memory. By default it returns large pieces, such as batches and parts of checkpoints,
/// to the kernel, only to request and clear them again for the next one. That can double the cost of receiving them.
void keep_freed_memory();

/// If the `replicas` on this host are more than its cores, asks Linux to let the threads that this process starts run
/// for up to 100 ms at a time, and not to interrupt threads of the same kind when they wake up. Replicas then lose
/// their caches less often (decision 106). Does nothing if the system refuses; before Linux 6.12, the turns keep their
/// usual length. Call before the process starts threads.
void run_in_long_turns(std::size_t replicas);

}  // namespace poprun
