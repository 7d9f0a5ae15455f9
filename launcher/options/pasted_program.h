#pragma once

#include <span>
#include <string>

#include "replica/base/error.h"

namespace poprun::launcher {

/// Detects a pasted command line of poprun that ends in a program with its own options (`poprun -n 2 python3 run.py
/// --epochs 3`). Like poprun, this looks for the first word that is neither an option nor the value of one, so that the
/// program's options are not mistaken for ours. Errors: kUsage if that word is a program (a script, an executable file,
/// or a command in PATH), or if an option before it is wrong.
Status check_no_program(std::span<const std::string> args);

}  // namespace poprun::launcher
