#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "replica/base/error.h"
#include "replica/base/units.h"

/// One line and code 69 where a host's limits end, instead of an abort.
namespace poprun {

/// What libraries throw for want of memory, threads or files ends this process from now on with a line of `program`
/// that names the limit. Anything else thrown still aborts. Call first in main.
void end_in_a_line_at_limits(std::string_view program);

/// Whether this process and its children may have `threads` threads or processes more, by starting that many for a
/// moment: whatever limits them (ulimit -u, a control group's pids.max), in whichever of its layers. Libraries that get
/// no thread hang, abort or speak of something else. Costs about 20 us a thread.
///
/// Errors
///   kHostResources  not that many can be started; `purpose` says what needs them.
Status check_room_for_threads(std::size_t threads, std::string_view purpose);

struct FreeMemory {
  Bytes bytes;
  std::string source;  ///< Who says so: "MemAvailable and SwapFree of /proc/meminfo".
};

/// What this process may still take: the least of what the machine has and what the control groups (version 1 or 2)
/// leave, file caches that can be dropped counted as free. Nothing where none of them tells. `root` is where proc and
/// sys are, for tests.
std::optional<FreeMemory> free_memory(const std::string& root = "");

}  // namespace poprun
