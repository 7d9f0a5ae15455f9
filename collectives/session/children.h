#pragma once

#include <vector>

#include <sys/types.h>

namespace poprun::collectives {

/// The children of `parent` that were not reaped, also those adopted from children that died.
std::vector<pid_t> children_of(pid_t parent);

/// The parent of `pid`, 0 where there is no such process.
pid_t parent_of(pid_t pid);

}  // namespace poprun::collectives
