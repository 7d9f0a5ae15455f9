#pragma once

#include <string>

#include "replica/base/error.h"

namespace poprun::launcher {

/// All bytes of the file at `path`, also of a pipe.
///
/// Errors
///   kData  `path`: why it cannot be read.
Result<std::string> read_file(const std::string& path);

}  // namespace poprun::launcher
