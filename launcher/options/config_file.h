#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/command_line.h"
#include "replica/base/error.h"

/// The files that `cmake --install` puts beside the programs: PREFIX/share/poprun-emu, found from
/// where the running program lies, so that the whole installation may be moved.
/// train.cfg: Boost.Program_options' own file format.
///
///   # comment, also after a value
///   [section]
///   key = value
namespace poprun::launcher {

/// PREFIX/share/poprun-emu, or empty where the program is not installed.
std::string installed_folder();

/// The installed train.cfg, or empty.
std::string default_job();

/// Where the installation has a file of that name, as itself or as an example; or empty.
std::string installed_file(const std::string& name);

struct ConfigEntry {
  std::string section;  ///< Never empty.
  std::string key;
  std::string value;
  std::size_t line = 0;  ///< From 1.
};

/// The entries of `text` in order. Knows no key; `file` is for messages. Never crashes.
///
/// Errors
///   kUsage  `file:line: ...`: neither a section, nor `key = value`; a key before any section.
Result<std::vector<ConfigEntry>> parse_config(std::string_view file, std::string_view text);

/// The whole file.
///
/// Errors
///   kUsage  it can't be read, or is larger than 1 MiB.
Result<std::string> read_config_file(const std::string& path);

/// Windows programs begin UTF-8 with one.
std::string_view without_byte_order_mark(std::string_view text);

/// What the text of a train.cfg gives values to. `file` is for messages.
///
/// Errors
///   kUsage  `file:line: ...`: those of parse_config; an unknown section or key, with the one that
///           may have been meant; a key given twice.
Result<std::vector<Written>> written_in_file(const std::string& file, std::string_view text);

}  // namespace poprun::launcher
