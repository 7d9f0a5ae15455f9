#pragma once

#include <string_view>

namespace poprun {

/// Adds a line with `name` to the file that POPRUN_EMU_RARE names, if that variable is set. Returns true. Threads: any.
bool note_rare(std::string_view name);

/// Marks a branch that only faults reach, as FoundationDB's CODE_PROBE does. tests/faults/campaign.py prints the marked
/// branches that its cases reached. A large campaign fails if none of its cases reaches a marked branch and
/// tests/faults/unreached.txt does not list that branch. Cost: a comparison after the first pass.
#define POPRUN_RARE(name)                                                      \
  do {                                                                         \
    [[maybe_unused]] static const bool noted_here = ::poprun::note_rare(name); \
  } while (false)

}  // namespace poprun
