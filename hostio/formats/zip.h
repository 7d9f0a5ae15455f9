#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "hostio/formats/open_file.h"
#include "replica/base/error.h"

/// Zip archives, as far as NumPy writes them: members stored or deflated, on one disk, with the
/// 64-bit fields of large ones, without encryption. libzip reads them.
///
/// Whatever the bytes are, the answer is a value or one line that names the file and what is wrong.
/// A member's memory grows with the bytes that are really there.
namespace poprun::hostio {

struct ZipMember {
  std::string name;
  std::uint64_t size = 0;   ///< Unpacked, as the directory says.
  std::uint64_t index = 0;  ///< In the directory.
};

/// The members, in the order of the archive's directory.
///
/// Errors: those of OpenFile::open, and
///   kData  not a zip archive, damaged, or of a kind that is not read.
Result<std::vector<ZipMember>> zip_members(const std::filesystem::path& archive,
                                           const FileScope& scope = {});

/// The member's first `most` bytes, all where it has fewer. Its checksum is compared where it is
/// read to the end.
///
/// Errors: those of OpenFile::open and check_room, and
///   kData  the archive or the member is damaged; names both.
Result<std::vector<std::byte>> read_member(
    const std::filesystem::path& archive, const FileScope& scope, const ZipMember& member,
    std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

}  // namespace poprun::hostio
