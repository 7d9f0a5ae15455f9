#pragma once

#include <string>

/// The files that `cmake --install` puts beside the programs: PREFIX/share/poprun-emu, found from
/// where the running program lies, so that the whole installation may be moved.
namespace poprun::launcher {

/// PREFIX/share/poprun-emu, or empty where the program is not installed.
std::string installed_folder();

/// The installed train.cfg, or empty.
std::string default_job();

/// Where the installation has a file of that name, as itself or as an example; or empty.
std::string installed_file(const std::string& name);

}  // namespace poprun::launcher
