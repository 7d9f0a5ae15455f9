#pragma once

#include <span>
#include <string>

#include "replica/base/error.h"

namespace poprun::launcher {

/// Detects a pasted command line of poprun that ends in a program with its own options (`poprun -n 2 python3 run.py
/// --epochs 3`). Like poprun, this stops at the first word that is neither an option nor the value of one, and does not
/// read the program's options as ours.
///
/// Errors
///   kUsage  that word is a program (a script, an executable file, or a command in PATH), or an
///           option before it is wrong.
Status check_no_program(std::span<const std::string> args);

}  // namespace poprun::launcher
