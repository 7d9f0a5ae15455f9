#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string_view>
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

/// Fills `out` from byte `offset` of the file on. `name` is the file's in messages.
///
/// Errors
///   kData  the file ends before, or cannot be read.
Status read_at(const OpenFile& file, std::uint64_t offset, std::span<std::byte> out,
               std::string_view name);

}  // namespace poprun::hostio
