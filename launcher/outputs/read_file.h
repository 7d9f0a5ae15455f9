#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "replica/base/error.h"

namespace poprun::launcher {

/// The first `most` bytes of the file at `path`, also of a pipe; fewer where it ends before.
///
/// Errors
///   kData  `path`: why it cannot be read.
Result<std::string> read_file(const std::string& path, std::uint64_t most);

/// The size of a regular file, before it is read; nothing for a pipe and what does not exist.
std::optional<std::uint64_t> size_of_file(const std::string& path);

}  // namespace poprun::launcher
