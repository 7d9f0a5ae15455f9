#pragma once

#include <string>

namespace poprun::launcher {

/// "poprun-emu [options] train.cfg, for example: ...".
extern const char* const kUsageLine;

/// --help: usage, the rows in groups with their defaults, exit codes.
std::string help_text();

}  // namespace poprun::launcher
