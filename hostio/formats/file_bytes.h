#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <vector>

#include "replica/base/error.h"

namespace poprun::hostio {

inline constexpr std::uint64_t kWholeFile = std::numeric_limits<std::uint64_t>::max();

/// `most` bytes of the file from `offset` on, fewer where it ends before.
///
/// Errors
///   kData  it is no regular file or cannot be read; names it and the reason.
Result<std::vector<std::byte>> read_bytes(const std::filesystem::path& file,
                                          std::uint64_t most = kWholeFile,
                                          std::uint64_t offset = 0);

}  // namespace poprun::hostio
