#pragma once

#include <string>

namespace poprun::launcher {

/// Returns the lines of `--version -v` that the launcher knows: the commit and the compiler with which poprun-emu was
/// built, libraries, chips, and the versions of its formats. The first line is that of --version.
std::string version_lines();

}  // namespace poprun::launcher
