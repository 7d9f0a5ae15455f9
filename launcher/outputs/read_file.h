#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "replica/base/error.h"

namespace poprun::launcher {

/// Returns the first `most` bytes of the file at `path`, or all bytes if the file is shorter. The file may be a pipe.
/// Errors: kData, with `path` and the reason why it cannot be read.
Result<std::string> read_file(const std::string& path, std::uint64_t most);

/// Returns the size of a regular file without reading it, or nothing for a pipe or a missing file.
std::optional<std::uint64_t> size_of_file(const std::string& path);

}  // namespace poprun::launcher
