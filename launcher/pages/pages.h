#pragma once

#include <string>

namespace poprun::launcher {

/// Generates poprun-emu(1) in groff's man macros (groff_man(7)) from the option table.
std::string manual_page();

/// Generates a completion script for bash from the option table: options, the values of those that have a list, and
/// files, folders, hosts, datasets and models if an option takes one. Needs nothing but bash.
std::string bash_completion();

}  // namespace poprun::launcher
