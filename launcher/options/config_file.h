#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/command_line.h"
#include "launcher/options/mistakes.h"
#include "replica/base/error.h"

/// Finds, relative to the running program, the files that `cmake --install` puts into PREFIX/share/poprun-emu, so that
/// the whole installation can be moved. Also reads train.cfg, which is in the file format of Boost.Program_options:
///
///     # comment, also after a value
///     [section]
///     key = value
namespace poprun::launcher {

/// Returns PREFIX/share/poprun-emu, or "" if the program is not installed.
std::string installed_folder();

/// Returns the path of the installed train.cfg, or "" if there is none.
std::string default_job();

/// Returns a hint for the end of a message, which names an installed job that can be run unchanged, or "" if there is
/// none.
std::string default_job_hint();

/// Returns the path of the installed file or example with this name, or "" if there is none.
std::string installed_file(const std::string& name);

/// Reads the whole file, without the byte order mark that Windows programs write at the beginning of UTF-8. Errors:
/// kUsage if it cannot be read or is larger than 1 MiB.
Result<std::string> read_config_file(const std::string& path);

/// Returns the values that the text of a train.cfg sets. `file` is the file's name for messages. Adds to `mistakes`
/// lines that are neither `[section]` nor `key = value`, entries before the first section, unknown sections and keys
/// (the message suggests a known one), and keys that are given twice. Handles any text without crashing.
std::vector<Written> written_in_file(const std::string& file, std::string_view text, Mistakes& mistakes);

}  // namespace poprun::launcher
