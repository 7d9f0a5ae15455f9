#include "hostio/formats/zip.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <zip.h>

namespace poprun::hostio {
namespace {

namespace fs = std::filesystem;

/// Limit on members, far more than a dataset has. It bounds the cost of reading the directory again for each member.
constexpr std::uint64_t kMembersMax = 1024;

struct Close {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};
using Archive = std::unique_ptr<zip_t, Close>;
using Member = std::unique_ptr<zip_file_t, Close>;

tl::unexpected<Error> damaged(const fs::path& archive, const std::string& what) {
  return fail(ErrorCode::kData, fmt::format("{}: not a zip archive that NumPy wrote: {}", archive.string(), what));
}

Result<Archive> open(const fs::path& file, const FileScope& scope) {
  POPRUN_ASSIGN(OpenFile opened, OpenFile::open(file, scope));
  int code = 0;
  Archive archive(zip_fdopen(opened.descriptor(), 0, &code));
  if (archive != nullptr) {
    opened.release();  // The archive closes the descriptor.
  } else {
    zip_error_t error{};
    zip_error_init_with_code(&error, code);
    const std::string reason = zip_error_strerror(&error);
    zip_error_fini(&error);
    if (code == ZIP_ER_OPEN || code == ZIP_ER_READ) {
      return fail(ErrorCode::kData, fmt::format("{}: cannot be read: {}", file.string(), reason));
    }
    return damaged(file, reason + "; the file may be incomplete");
  }
  return archive;
}

Result<ZipMember> member_at(zip_t* archive, std::uint64_t index, const fs::path& file) {
  zip_stat_t facts{};
  if (zip_stat_index(archive, index, 0, &facts) != 0) {
    return damaged(file, zip_strerror(archive));
  }
  ZipMember member{.name = facts.name, .size = facts.size, .index = index};
  if (std::ranges::any_of(member.name, [](unsigned char c) { return c < 0x20 || c == 0x7F; })) {
    return damaged(file, "a member's name contains unprintable characters");
  }
  const bool encrypted = facts.encryption_method != ZIP_EM_NONE;
  if (encrypted || (facts.comp_method != ZIP_CM_STORE && facts.comp_method != ZIP_CM_DEFLATE)) {
    return damaged(file, fmt::format("members must be stored or deflated, but one {}",
                                     encrypted ? "is encrypted" : fmt::format("uses method {}", facts.comp_method)));
  }
  return member;
}

/// Reads `count` bytes, or fewer if the member ends or is damaged.
Result<std::vector<std::byte>> read_from(zip_file_t* member, std::uint64_t count, const std::string& name,
                                         const FileScope& scope) {
  constexpr std::uint64_t kFirstGrowth = std::uint64_t{1} << 20;
  constexpr std::uint64_t kPiece = std::uint64_t{16} << 20;
  std::vector<std::byte> bytes;
  std::uint64_t had = 0;
  while (had < count) {
    if (had == bytes.size()) {
      // The buffer is doubled each time, so that a false size in the archive costs at most twice the real bytes.
      POPRUN_TRY(scope.resize(bytes, std::min<std::uint64_t>(count, std::max(kFirstGrowth, 2 * had)), name));
    }
    const zip_int64_t read = zip_fread(member, bytes.data() + had, std::min<std::uint64_t>(kPiece, bytes.size() - had));
    if (read <= 0) {
      break;
    }
    had += static_cast<std::uint64_t>(read);
    scope.advance(static_cast<std::uint64_t>(read));
  }
  bytes.resize(had);
  return bytes;
}

}  // namespace

Result<std::vector<ZipMember>> zip_members(const fs::path& file, const FileScope& scope) {
  POPRUN_ASSIGN(const Archive archive, open(file, scope));
  std::vector<ZipMember> members;
  const auto count = static_cast<std::uint64_t>(zip_get_num_entries(archive.get(), 0));
  if (count > kMembersMax) {
    return damaged(file, fmt::format("expected at most {} members, found {}", kMembersMax, count));
  }
  for (std::uint64_t index = 0; index < count; ++index) {
    POPRUN_ASSIGN(ZipMember member, member_at(archive.get(), index, file));
    members.push_back(std::move(member));
  }
  return members;
}

Result<std::vector<std::byte>> read_member(const fs::path& file, const FileScope& scope, const ZipMember& member,
                                           std::uint64_t most) {
  POPRUN_ASSIGN(const Archive archive, open(file, scope));
  const Member open_member(zip_fopen_index(archive.get(), member.index, 0));
  if (open_member == nullptr) {
    return fail(ErrorCode::kData, fmt::format("{}: {}: {}; write the file again", file.string(), member.name,
                                              zip_strerror(archive.get())));
  }
  const std::uint64_t count = std::min(member.size, most);
  POPRUN_ASSIGN(std::vector<std::byte> bytes,
                read_from(open_member.get(), count, fmt::format("{}: {}", file.string(), member.name), scope));
  // Reading past the end makes libzip compare the checksum.
  std::byte behind{};
  const zip_int64_t more = count == member.size ? zip_fread(open_member.get(), &behind, 1) : 0;
  if (bytes.size() != count || more != 0) {
    return fail(ErrorCode::kData, fmt::format("{}: {}: expected {} bytes, found {} ({}); write the file again",
                                              file.string(), member.name, count, bytes.size(),
                                              more > 0 ? "and more after them" : zip_file_strerror(open_member.get())));
  }
  return bytes;
}

}  // namespace poprun::hostio
