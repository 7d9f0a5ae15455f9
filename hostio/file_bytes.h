#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <vector>

#include "replica/base/error.h"

namespace poprun::hostio {

/// The first `most` bytes of the file, all where it has fewer.
///
/// Errors
///   kData  it is no regular file or cannot be read; names it and the reason.
Result<std::vector<std::byte>> read_bytes(
    const std::filesystem::path& file, std::size_t most = std::numeric_limits<std::size_t>::max());

}  // namespace poprun::hostio
