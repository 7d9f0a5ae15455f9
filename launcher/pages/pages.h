#pragma once

#include <string>

namespace poprun::launcher {

/// Generates poprun-emu(1) in groff's man macros (groff_man(7)) from the option table.
std::string manual_page();

/// Generates a completion script for bash from the option table. It completes options, values with a list of choices,
/// and files, folders, hosts, datasets and models for the options that accept them. The script needs only bash.
std::string bash_completion();

/// Generate the same for zsh and fish, with a description of each option.
std::string zsh_completion();
std::string fish_completion();

}  // namespace poprun::launcher
