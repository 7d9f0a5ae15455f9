#include "hostio/formats/zip.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>
#include <zlib.h>

#include "hostio/formats/content.h"

namespace poprun::hostio {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::uint32_t kLocalHeader = 0x04034B50;
constexpr std::uint32_t kDirectoryEntry = 0x02014B50;
constexpr std::uint32_t kDirectoryEnd = 0x06054B50;
constexpr std::uint32_t kLargeDirectoryEnd = 0x06064B50;
constexpr std::uint32_t kLargeLocator = 0x07064B50;

constexpr std::uint64_t kLocalHeaderSize = 30;
constexpr std::uint64_t kDirectoryEntrySize = 46;
constexpr std::uint64_t kDirectoryEndSize = 22;
constexpr std::uint64_t kLargeDirectoryEndSize = 56;
constexpr std::uint64_t kLargeLocatorSize = 20;
constexpr std::uint64_t kCommentMax = 0xFFFF;
constexpr std::uint64_t kIn64Bits = 0xFFFFFFFF;  ///< "See the field of 64 bits."

/// A little-endian integer of `width` bytes. Requires: it lies inside.
std::uint64_t integer(Bytes bytes, std::uint64_t at, unsigned width) {
  std::uint64_t value = 0;
  for (unsigned i = width; i > 0; --i) {
    value = (value << 8) | std::to_integer<std::uint64_t>(bytes[at + i - 1]);
  }
  return value;
}

tl::unexpected<Error> damaged(const ByteSource& archive, const std::string& what) {
  return fail(ErrorCode::kData,
              fmt::format("{}: not a zip archive that NumPy wrote: {}", archive.name, what));
}

/// Where the list of members is.
struct Directory {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
};

/// The directory of an archive whose end record has no room for its numbers.
Result<Directory> large_directory(const ByteSource& archive, std::uint64_t end_record) {
  if (end_record < kLargeLocatorSize) {
    return damaged(archive, "its 64-bit end record is missing");
  }
  POPRUN_ASSIGN(const auto locator,
                archive.read(end_record - kLargeLocatorSize, kLargeLocatorSize));
  const std::uint64_t at = integer(locator, 8, 8);
  if (integer(locator, 0, 4) != kLargeLocator || archive.size < kLargeDirectoryEndSize ||
      at > archive.size - kLargeDirectoryEndSize) {
    return damaged(archive, "its 64-bit end record is missing");
  }
  POPRUN_ASSIGN(const auto end, archive.read(at, kLargeDirectoryEndSize));
  if (integer(end, 0, 4) != kLargeDirectoryEnd) {
    return damaged(archive, "its 64-bit end record is missing");
  }
  return Directory{.begin = integer(end, 48, 8), .size = integer(end, 40, 8)};
}

Result<Directory> find_directory(const ByteSource& archive) {
  const std::uint64_t tail_size = std::min(archive.size, kDirectoryEndSize + kCommentMax);
  POPRUN_ASSIGN(const auto tail, archive.read(archive.size - tail_size, tail_size));
  for (std::uint64_t left = kDirectoryEndSize; left <= tail_size; ++left) {
    const Bytes end = Bytes(tail).last(left);
    // The comment behind the record reaches to the end, or this is no record.
    if (integer(end, 0, 4) != kDirectoryEnd || integer(end, 20, 2) != left - kDirectoryEndSize) {
      continue;
    }
    const Directory directory{.begin = integer(end, 16, 4), .size = integer(end, 12, 4)};
    const bool large = directory.begin == kIn64Bits || directory.size == kIn64Bits;
    return large ? large_directory(archive, archive.size - left) : directory;
  }
  return damaged(archive, "it has no end record; is the file complete?");
}

/// Takes the fields that are in the 64-bit extra of a directory entry.
void take_large_fields(Bytes extra, ZipMember& member) {
  while (extra.size() >= 4) {
    const std::uint64_t id = integer(extra, 0, 2);
    const std::uint64_t size = std::min<std::uint64_t>(integer(extra, 2, 2), extra.size() - 4);
    if (id == 1) {
      Bytes fields = extra.subspan(4, size);
      for (std::uint64_t* field : {&member.size, &member.packed_size, &member.header}) {
        if (*field == kIn64Bits && fields.size() >= 8) {
          *field = integer(fields, 0, 8);
          fields = fields.subspan(8);
        }
      }
      return;
    }
    extra = extra.subspan(4 + size);
  }
}

/// The first entry of `directory`, which loses it.
Result<ZipMember> take_entry(const ByteSource& archive, Bytes& directory) {
  if (directory.size() < kDirectoryEntrySize || integer(directory, 0, 4) != kDirectoryEntry) {
    return damaged(archive, "its list of members is damaged");
  }
  const std::uint64_t name_size = integer(directory, 28, 2);
  const std::uint64_t extra_size = integer(directory, 30, 2);
  const std::uint64_t size =
      kDirectoryEntrySize + name_size + extra_size + integer(directory, 32, 2);
  if (size > directory.size()) {
    return damaged(archive, "its list of members is damaged");
  }
  const std::uint64_t method = integer(directory, 10, 2);
  ZipMember member{
      .name = {reinterpret_cast<const char*>(directory.data()) + kDirectoryEntrySize, name_size},
      .deflated = method == 8,
      .crc = static_cast<std::uint32_t>(integer(directory, 16, 4)),
      .packed_size = integer(directory, 20, 4),
      .size = integer(directory, 24, 4),
      .header = integer(directory, 42, 4)};
  take_large_fields(directory.subspan(kDirectoryEntrySize + name_size, extra_size), member);
  if (std::ranges::any_of(member.name, [](unsigned char c) { return c < 0x20 || c == 0x7F; })) {
    return damaged(archive, "a member's name has characters that cannot be printed");
  }
  const bool encrypted = (integer(directory, 8, 2) & 1U) != 0;
  if (encrypted || (method != 0 && method != 8)) {
    return damaged(archive, fmt::format("needed a stored or deflated member, had one {}",
                                        encrypted ? "that is encrypted"
                                                  : fmt::format("of method {}", method)));
  }
  directory = directory.subspan(size);
  return member;
}

/// Where the member's bytes begin, behind its local header.
Result<std::uint64_t> data_of(const ByteSource& archive, const ZipMember& member) {
  if (archive.size < kLocalHeaderSize || member.header > archive.size - kLocalHeaderSize) {
    return damaged(archive, "a member lies outside");
  }
  POPRUN_ASSIGN(const auto header, archive.read(member.header, kLocalHeaderSize));
  const std::uint64_t data =
      member.header + kLocalHeaderSize + integer(header, 26, 2) + integer(header, 28, 2);
  if (integer(header, 0, 4) != kLocalHeader || data > archive.size ||
      member.packed_size > archive.size - data) {
    return damaged(archive, "a member lies outside");
  }
  return data;
}

std::uint32_t checksum(Bytes bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

Result<std::vector<ZipMember>> zip_members(const ByteSource& archive) {
  POPRUN_ASSIGN(const Directory directory, find_directory(archive));
  if (directory.begin > archive.size || directory.size > archive.size - directory.begin) {
    return damaged(archive, "its list of members lies outside");
  }
  POPRUN_ASSIGN(const auto bytes, archive.read(directory.begin, directory.size));
  std::vector<ZipMember> members;
  for (Bytes rest = bytes; !rest.empty();) {
    POPRUN_ASSIGN(ZipMember member, take_entry(archive, rest));
    members.push_back(std::move(member));
  }
  return members;
}

Result<std::vector<std::byte>> read_member(const ByteSource& archive, const ZipMember& member,
                                           std::uint64_t most) {
  POPRUN_ASSIGN(const std::uint64_t data, data_of(archive, member));
  const std::uint64_t count = std::min(member.size, most);
  std::vector<std::byte> bytes;
  if (member.deflated) {
    // Bytes that do not compress grow by 5 in 16 K; half as many more always suffice.
    const std::uint64_t packed_size =
        std::min(member.packed_size, std::min(count, member.packed_size) * 3 / 2 + 4096);
    POPRUN_ASSIGN(const auto packed, archive.read(data, packed_size));
    Content content(packed, fmt::format("{}: {}", archive.name, member.name), Packing::kDeflate);
    POPRUN_ASSIGN(bytes, content.take<std::byte>(count));
  } else {
    POPRUN_ASSIGN(bytes, archive.read(data, std::min(count, member.packed_size)));
  }
  const bool whole = count == member.size;
  if (bytes.size() != count || (whole && checksum(bytes) != member.crc)) {
    return fail(
        ErrorCode::kData,
        fmt::format("{}: {}: needed {} bytes of checksum {:08x}, had {} of {:08x}; write "
                    "the file anew",
                    archive.name, member.name, count, member.crc, bytes.size(), checksum(bytes)));
  }
  return bytes;
}

}  // namespace poprun::hostio
