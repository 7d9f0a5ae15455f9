#pragma once

#include <vector>

#include <sys/types.h>

namespace poprun::collectives {

/// Returns the unreaped children of `parent`, including those adopted from children that died.
std::vector<pid_t> children_of(pid_t parent);

/// Returns the parent of `pid`; 0 if there is no such process.
pid_t parent_of(pid_t pid);

}  // namespace poprun::collectives
