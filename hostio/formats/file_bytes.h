#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <vector>

#include "hostio/formats/open_file.h"
#include "replica/base/error.h"

namespace poprun::hostio {

inline constexpr std::uint64_t kWholeFile = std::numeric_limits<std::uint64_t>::max();

/// `most` bytes of the file from `offset` on, fewer where it ends before.
///
/// Errors: those of OpenFile::open and check_room.
Result<std::vector<std::byte>> read_bytes(const std::filesystem::path& file,
                                          const FileScope& scope = {},
                                          std::uint64_t most = kWholeFile,
                                          std::uint64_t offset = 0);

}  // namespace poprun::hostio
