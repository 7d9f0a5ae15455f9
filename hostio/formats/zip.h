#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "hostio/formats/file_bytes.h"
#include "replica/base/error.h"

/// Zip archives, as far as NumPy writes them: members stored or deflated, on one disk, with the
/// 64-bit fields of large ones, without encryption. PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 and
/// 4.5.3.
///
/// Whatever the bytes are, the answer is a value or one line that names the file, what was needed
/// and what was there. Memory grows with the bytes that are really there.
namespace poprun::hostio {

struct ZipMember {
  std::string name;
  bool deflated = false;
  std::uint32_t crc = 0;
  std::uint64_t packed_size = 0;
  std::uint64_t size = 0;
  std::uint64_t header = 0;  ///< Where its local header begins.
};

/// The members, in the order of the archive's directory.
///
/// Errors
///   kData  not a zip archive, damaged, or of a kind that is not read.
Result<std::vector<ZipMember>> zip_members(const ByteSource& archive);

/// The member's first `most` bytes, all where it has fewer. Its checksum is compared where it is
/// read to the end.
///
/// Errors
///   kData  the member is damaged; names archive and member.
Result<std::vector<std::byte>> read_member(
    const ByteSource& archive, const ZipMember& member,
    std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

}  // namespace poprun::hostio
