#include "hostio/formats/open_file.h"

#include <cerrno>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "replica/base/host_limits.h"
#include "replica/base/sha256.h"
#include "replica/base/text.h"

namespace poprun::hostio {
namespace {

namespace fs = std::filesystem;

/// Returns whether `file` is in or below the folder `root`. Requires: both paths are canonical.
bool is_below(const fs::path& file, const fs::path& root) {
  return std::mismatch(root.begin(), root.end(), file.begin(), file.end()).first == root.end();
}

tl::unexpected<Error> unreadable(const fs::path& file, std::string_view why) {
  return fail(ErrorCode::kData, fmt::format("{}: cannot be read: {}", file.string(), why));
}

/// Returns the path of the open file with links resolved.
fs::path real_path(int descriptor) {
  std::error_code failed;
  return fs::read_symlink(fmt::format("/proc/self/fd/{}", descriptor), failed);
}

std::string_view kind_of(const struct stat& facts) {
  return S_ISDIR(facts.st_mode)    ? "it is a folder"
         : S_ISFIFO(facts.st_mode) ? "it is a pipe"
                                   : "it is a device or a socket";
}

}  // namespace

Status read_at(const OpenFile& file, std::uint64_t offset, std::span<std::byte> out, std::string_view name) {
  std::uint64_t had = 0;
  while (had < out.size()) {
    const ssize_t got =
        ::pread(file.descriptor(), out.data() + had, out.size() - had, static_cast<off_t>(offset + had));
    if (got > 0) {
      had += static_cast<std::uint64_t>(got);
    } else if (got == 0 || errno != EINTR) {
      return fail(ErrorCode::kData,
                  fmt::format("{}: expected {} bytes at offset {}, but could read only {}{}", name, out.size(), offset,
                              had, got == 0 ? "" : fmt::format(": {}", std::strerror(errno))));
    }
  }
  return {};
}

Result<std::vector<std::byte>> read_bytes(const std::filesystem::path& file, const FileScope& scope, std::uint64_t most,
                                          std::uint64_t offset) {
  constexpr std::uint64_t kPieceBytes = 16 << 20;
  POPRUN_ASSIGN(const OpenFile opened, OpenFile::open(file, scope));
  const std::uint64_t begin = std::min(opened.size(), offset);
  const std::uint64_t count = std::min(most, opened.size() - begin);
  std::vector<std::byte> bytes;
  POPRUN_TRY(scope.resize(bytes, count, file.string()));
  for (std::uint64_t at = 0; at < count; at += kPieceBytes) {
    const std::span piece = std::span(bytes).subspan(at, std::min(kPieceBytes, count - at));
    POPRUN_TRY(read_at(opened, begin + at, piece, file.string()));
    scope.advance(piece.size());
  }
  return bytes;
}

Result<std::string> fingerprint_of(const std::vector<fs::path>& files, const FileScope& scope) {
  constexpr std::uint64_t kPieceBytes = 4 << 20;
  Sha256 digest;
  for (const fs::path& path : files) {
    POPRUN_ASSIGN(const OpenFile file, OpenFile::open(path, scope));
    const std::uint64_t size = file.size();
    digest.add({reinterpret_cast<const char*>(&size), sizeof size});
    std::vector<std::byte> piece(std::min(size, kPieceBytes));
    for (std::uint64_t at = 0; at < size; at += piece.size()) {
      piece.resize(std::min<std::uint64_t>(piece.size(), size - at));
      POPRUN_TRY(read_at(file, at, piece, path.string()));
      digest.add({reinterpret_cast<const char*>(piece.data()), piece.size()});
      scope.advance(piece.size());
    }
  }
  return digest.digest();
}

Result<FileScope> FileScope::below(const fs::path& root) {
  std::error_code failed;
  const fs::path real = fs::canonical(root, failed);
  if (failed || !fs::is_directory(real, failed)) {
    return fail(ErrorCode::kUsage, fmt::format("{}: cannot be used as the root folder: {}", root.string(),
                                               failed ? failed.message() : "it is not a folder"));
  }
  FileScope scope;
  scope.root_ = real;
  return scope;
}

FileScope FileScope::nothing() {
  FileScope scope;
  scope.root_ = fs::path{};
  return scope;
}

FileScope FileScope::during(std::shared_ptr<Reading> reading) const {
  FileScope scope = *this;
  scope.reading_ = std::move(reading);
  return scope;
}

void FileScope::advance(std::uint64_t bytes) const {
  if (reading_ != nullptr) {
    reading_->advance(bytes);
  }
}

Status FileScope::check_promise(std::uint64_t bytes, std::string_view what) const {
  return reading_->promise(bytes, [&](std::uint64_t promised) { return check_room(what, bytes, promised); });
}

Status FileScope::admits(const fs::path& file) const {
  if (!root_) {
    return {};
  }
  std::error_code failed;
  const fs::path real = fs::weakly_canonical(fs::absolute(file, failed), failed);
  if (!failed && !root_->empty() && is_below(real, *root_)) {
    return {};
  }
  return fail(ErrorCode::kUsage,
              fmt::format("{}: the data server does not serve this file; start it with --root set to a folder above "
                          "the file, or with --source set to this job's data.source",
                          file.string()));
}

Result<OpenFile> OpenFile::open(const fs::path& file, const FileScope& scope) {
  POPRUN_TRY(scope.admits(file));
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) {
    return unreadable(file, std::strerror(errno));
  }
  OpenFile opened(descriptor, 0);
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0) {
    return unreadable(file, std::strerror(errno));
  }
  POPRUN_TRY(scope.admits(real_path(descriptor)));
  if (!S_ISREG(facts.st_mode)) {
    return unreadable(file, fmt::format("{}; only regular files are read", kind_of(facts)));
  }
  opened.size_ = static_cast<std::uint64_t>(facts.st_size);
  if (Reading* reading = scope.reading()) {
    POPRUN_TRY(reading->opened(file, facts));
  }
  return opened;
}

OpenFile::OpenFile(OpenFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

OpenFile::~OpenFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

Status check_room(std::string_view what, std::uint64_t bytes, std::uint64_t promised) {
  constexpr std::uint64_t kGranted = std::uint64_t{64} << 20;
  if (bytes <= kGranted) {
    return {};
  }
  const auto memory = free_memory();
  if (!memory) {
    return {};
  }
  const auto all = static_cast<std::uint64_t>(memory->bytes.count());
  const std::uint64_t free = all - std::min(all, promised);
  if (bytes <= free) {
    return {};
  }
  return fail(ErrorCode::kData,
              fmt::format("{}: needs {} of memory, but only {} is free ({}); use a smaller dataset or a "
                          "host with more memory",
                          what, mebibytes_text(bytes), mebibytes_text(free), memory->source),
              {.shortage = Shortage{.needed = Bytes{static_cast<std::int64_t>(bytes)},
                                    .had = Bytes{static_cast<std::int64_t>(free)}}});
}

}  // namespace poprun::hostio
