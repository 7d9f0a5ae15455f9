#include "launcher/outputs/checkpoint_disk.h"

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "launcher/outputs/result_files.h"
#include "replica/base/sha256.h"

namespace poprun::launcher {
namespace {

namespace fs = std::filesystem;

/// A file descriptor that is open as long as this lives.
struct OpenFile {
  int number;
  explicit OpenFile(int opened) : number(opened) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (number >= 0) {
      close(number);
    }
  }
};

}  // namespace

Status sync_folder(const std::string& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Some file systems cannot sync folders, and need not.
  const bool synced = descriptor >= 0 && (fsync(descriptor) == 0 || errno == EINVAL);
  const int reason = errno;
  if (descriptor >= 0) {
    close(descriptor);
  }
  return synced ? Status{} : cannot_write(folder, reason);
}

Status write_at(int file, const std::string& path, std::string_view bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno != EINTR) {
      return cannot_write(path, errno);
    }
    const std::size_t count = written < 0 ? 0 : static_cast<std::size_t>(written);
    bytes.remove_prefix(count);
    offset += count;
  }
  return {};
}

Result<bool> copy_lines(const std::string& from, const std::string& to, std::uint64_t lines) {
  constexpr std::size_t kPieceBytes = 1 << 20;
  const OpenFile source(open(from.c_str(), O_RDONLY | O_CLOEXEC));
  const OpenFile target(open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (target.number < 0) {
    return tl::unexpected<Error>{cannot_write(to, errno).error()};
  }
  std::string piece(kPieceBytes, '\0');
  std::uint64_t written = 0;
  while (lines > 0) {
    const ssize_t got = read(source.number, piece.data(), piece.size());
    if (got <= 0) {
      return false;
    }
    std::size_t end = 0;
    while (end < static_cast<std::size_t>(got) && lines > 0) {
      lines -= piece[end++] == '\n' ? 1U : 0U;
    }
    POPRUN_TRY(write_at(target.number, to, std::string_view(piece).substr(0, end), written));
    written += end;
  }
  if (fsync(target.number) != 0) {
    return tl::unexpected<Error>{cannot_write(to, errno).error()};
  }
  return true;
}

void remove_checkpoint(const std::string& checkpoint) {
  const std::string none = checkpoint + ".old.part";
  std::error_code unused;
  fs::remove_all(none, unused);
  fs::rename(checkpoint, none, unused);
  fs::remove_all(none, unused);
}

void remove_parts(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.starts_with("step-") && name.ends_with(".part")) {
      std::error_code unused;
      fs::remove_all(entry->path(), unused);
    }
  }
}

Status add_to_manifest(const std::string& folder, const char* name, proto::CheckpointManifest& manifest) {
  const std::string path = fmt::format("{}/{}", folder, name);
  std::error_code error;
  proto::CheckpointFile& file = *manifest.add_files();
  file.set_name(name);
  file.set_bytes(fs::file_size(path, error));
  POPRUN_ASSIGN(*file.mutable_sha256(), sha256_of_file(path));
  return {};
}

}  // namespace poprun::launcher
