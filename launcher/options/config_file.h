#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"

/// train.cfg: Boost.Program_options' own file format.
///
///   # comment, also after a value
///   [section]
///   key = value
namespace poprun::launcher {

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

}  // namespace poprun::launcher
