#pragma once

#include <optional>
#include <string>

#include "replica/base/units.h"

namespace poprun {

struct FreeMemory {
  Bytes bytes;
  std::string source;  ///< Who says so: "MemAvailable and SwapFree of /proc/meminfo".
};

/// What this process may still take: the least of what the machine has and what the control groups
/// (version 1 or 2) leave, file caches that can be dropped counted as free. Nothing where none of
/// them tells. `root` is where proc and sys are, for tests.
std::optional<FreeMemory> free_memory(const std::string& root = "");

}  // namespace poprun
