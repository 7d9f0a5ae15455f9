#pragma once

#include <cstddef>
#include <string_view>

#include "replica/base/error.h"

/// One line and code 69 where a host's limits end, instead of an abort.
namespace poprun {

/// What libraries throw for want of memory, threads or files ends this process from now on with a
/// line of `program` that names the limit. Anything else thrown still aborts. Call first in main.
void end_in_a_line_at_limits(std::string_view program);

/// Whether this process and its children may have `threads` threads or processes more, by starting
/// that many for a moment: whatever limits them (ulimit -u, a control group's pids.max), in
/// whichever of its layers. Libraries that get no thread hang, abort or speak of something else.
/// Costs about 20 us a thread.
///
/// Errors
///   kHostResources  not that many can be started; `purpose` says what needs them.
Status check_room_for_threads(std::size_t threads, std::string_view purpose);

}  // namespace poprun
