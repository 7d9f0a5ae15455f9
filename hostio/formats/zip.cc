#include "hostio/formats/zip.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <minizip/unzip.h>

#include "hostio/formats/file_bytes.h"

namespace poprun::hostio {
namespace {

namespace fs = std::filesystem;

struct Close {
  void operator()(unzFile archive) const { unzClose(archive); }
};
using Archive = std::unique_ptr<void, Close>;

tl::unexpected<Error> damaged(const fs::path& archive, const std::string& what) {
  return fail(ErrorCode::kData,
              fmt::format("{}: not a zip archive that NumPy wrote: {}", archive.string(), what));
}

Result<Archive> open(const fs::path& file) {
  POPRUN_TRY(read_bytes(file, 1));  // Says why it cannot be read; minizip does not.
  Archive archive(unzOpen64(file.c_str()));
  if (archive == nullptr) {
    return damaged(file, "it has no end record; is the file complete?");
  }
  return archive;
}

/// The member that minizip stands at.
Result<ZipMember> current_member(unzFile archive, const fs::path& file) {
  unz_file_info64 info{};
  unz64_file_pos position{};
  ZipMember member;
  const auto read_info = [&] {
    return unzGetCurrentFileInfo64(archive, &info, member.name.data(), member.name.size(), nullptr,
                                   0, nullptr, 0) == UNZ_OK;
  };
  bool ok = read_info();  // The first time for the length of its name.
  member.name.resize(info.size_filename);
  ok = ok && read_info() && unzGetFilePos64(archive, &position) == UNZ_OK;
  if (!ok) {
    return damaged(file, "its list of members is damaged");
  }
  if (std::ranges::any_of(member.name, [](unsigned char c) { return c < 0x20 || c == 0x7F; })) {
    return damaged(file, "a member's name has characters that cannot be printed");
  }
  const bool encrypted = (info.flag & 1U) != 0;
  if (encrypted || (info.compression_method != 0 && info.compression_method != Z_DEFLATED)) {
    return damaged(file,
                   fmt::format("needed a stored or deflated member, had one {}",
                               encrypted ? "that is encrypted"
                                         : fmt::format("of method {}", info.compression_method)));
  }
  member.size = info.uncompressed_size;
  member.entry_offset = position.pos_in_zip_directory;
  member.entry_number = position.num_of_file;
  return member;
}

/// Up to `count` bytes of the open member; fewer where it is damaged.
std::vector<std::byte> read_open_member(unzFile archive, std::uint64_t count) {
  constexpr std::uint64_t kGrowth = std::uint64_t{1} << 20;
  std::vector<std::byte> bytes;
  while (bytes.size() < count) {
    const std::size_t had = bytes.size();
    // Doubles, so that a size that is a lie costs no more than twice what is there.
    bytes.resize(std::min(count, std::clamp<std::uint64_t>(2 * had, kGrowth, had + (1U << 30))));
    const int read =
        unzReadCurrentFile(archive, bytes.data() + had, static_cast<unsigned>(bytes.size() - had));
    bytes.resize(had + static_cast<std::size_t>(std::max(read, 0)));
    if (read <= 0) {
      break;
    }
  }
  return bytes;
}

}  // namespace

Result<std::vector<ZipMember>> zip_members(const fs::path& file) {
  POPRUN_ASSIGN(const Archive archive, open(file));
  unz_global_info64 info{};
  if (unzGetGlobalInfo64(archive.get(), &info) != UNZ_OK) {
    return damaged(file, "its end record is damaged");
  }
  std::vector<ZipMember> members;
  for (std::uint64_t i = 0; i < info.number_entry; ++i) {
    const int code = i == 0 ? unzGoToFirstFile(archive.get()) : unzGoToNextFile(archive.get());
    if (code != UNZ_OK) {
      return damaged(file, "its list of members is damaged");
    }
    POPRUN_ASSIGN(ZipMember member, current_member(archive.get(), file));
    members.push_back(std::move(member));
  }
  return members;
}

Result<std::vector<std::byte>> read_member(const fs::path& file, const ZipMember& member,
                                           std::uint64_t most) {
  POPRUN_ASSIGN(const Archive archive, open(file));
  const unz64_file_pos position{.pos_in_zip_directory = member.entry_offset,
                                .num_of_file = member.entry_number};
  if (unzGoToFilePos64(archive.get(), &position) != UNZ_OK ||
      unzOpenCurrentFile(archive.get()) != UNZ_OK) {
    return damaged(file, fmt::format("member {} is damaged", member.name));
  }
  const std::uint64_t count = std::min(member.size, most);
  std::vector<std::byte> bytes = read_open_member(archive.get(), count);
  // Closing compares the checksum, where all was read.
  const bool intact = unzCloseCurrentFile(archive.get()) != UNZ_CRCERROR;
  if (bytes.size() != count || !intact) {
    return fail(
        ErrorCode::kData,
        fmt::format("{}: {}: needed {} bytes, had {}{}; write the file anew", file.string(),
                    member.name, count, bytes.size(), intact ? "" : " whose checksum is another"));
  }
  return bytes;
}

}  // namespace poprun::hostio
