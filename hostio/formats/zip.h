#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "hostio/formats/open_file.h"
#include "replica/base/error.h"

/// Reads zip archives as NumPy writes them, with libzip: members are stored or deflated, there is one disk, sizes have
/// 64 bits if needed, and nothing is encrypted. Any input yields a value or a one-line error that names the file and
/// the fault. Memory use depends on a member's actual bytes.
namespace poprun::hostio {

struct ZipMember {
  std::string name;
  std::uint64_t size = 0;   ///< Unpacked size according to the directory.
  std::uint64_t index = 0;  ///< Index in the directory.
};

/// Returns the members, in the order of the archive's directory. Errors: those of OpenFile::open, and kData if it is
/// not a zip archive, is damaged or is of an unsupported kind.
Result<std::vector<ZipMember>> zip_members(const std::filesystem::path& archive, const FileScope& scope = {});

/// Returns the member's first `most` bytes, or all if it has fewer. The checksum is verified if the member is read to
/// its end. Errors: those of OpenFile::open and check_room, and kData if archive or member is damaged; the message
/// names both.
Result<std::vector<std::byte>> read_member(const std::filesystem::path& archive, const FileScope& scope,
                                           const ZipMember& member,
                                           std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

}  // namespace poprun::hostio
