#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/command_line.h"
#include "replica/base/error.h"

/// Finds the files that `cmake --install` puts into PREFIX/share/poprun-emu, relative to the running program, so that
/// the whole installation may be moved. Reads train.cfg, in the file format of Boost.Program_options:
///
///     # comment, also after a value
///     [section]
///     key = value
namespace poprun::launcher {

/// Returns PREFIX/share/poprun-emu; empty if the program is not installed.
std::string installed_folder();

/// Returns the path of the installed train.cfg; empty if there is none.
std::string default_job();

/// Returns the path of the installed file with this name, which may be an example; empty if there is none.
std::string installed_file(const std::string& name);

struct ConfigEntry {
  std::string section;  ///< Never empty.
  std::string key;
  std::string value;
  std::size_t line = 0;  ///< Counted from 1.
};

/// Returns the entries of `text` in order. Accepts any key; `file` is for messages. Never crashes. Errors: kUsage, with
/// `file:line: ...`, if a line is neither a section nor `key = value`, or precedes any section.
Result<std::vector<ConfigEntry>> parse_config(std::string_view file, std::string_view text);

/// Reads the whole file. Errors: kUsage if it cannot be read, or is larger than 1 MiB.
Result<std::string> read_config_file(const std::string& path);

/// Removes a leading byte order mark, which Windows programs write to UTF-8 files.
std::string_view without_byte_order_mark(std::string_view text);

/// Returns the values that the text of a train.cfg sets. `file` is for messages. Errors, with `file:line: ...`: those
/// of parse_config; kUsage for an unknown section or key (suggests a known one), or a key given twice.
Result<std::vector<Written>> written_in_file(const std::string& file, std::string_view text);

}  // namespace poprun::launcher
