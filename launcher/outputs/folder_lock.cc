#include "launcher/outputs/folder_lock.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "replica/base/rare.h"

namespace poprun::launcher {
namespace {

constexpr std::string_view kEpoch = "epoch ";

std::string path_in(const std::string& folder) {
  return fmt::format("{}/.poprun-emu.lock", folder);
}

struct Holder {
  std::uint64_t epoch = 0;  ///< 0 if the file does not exist, or has no epoch yet.
  std::string who;          ///< "host node-7, process 4711"
};

/// Reads the file anew, since an NFS client compares what it has cached with the server only when it opens a file.
Holder holder_of(const std::string& folder) {
  Holder holder;
  const int file = open(path_in(folder).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return holder;
  }
  std::array<char, 512> bytes{};
  const ssize_t got = pread(file, bytes.data(), bytes.size(), 0);
  close(file);
  std::string_view text(bytes.data(), got < 0 ? 0 : static_cast<std::size_t>(got));
  if (text.starts_with(kEpoch)) {
    std::from_chars(text.data() + kEpoch.size(), text.data() + text.size(), holder.epoch);
    text.remove_prefix(std::min(text.size(), text.find('\n') + 1));
    holder.who = text.substr(0, text.find('\n'));
  }
  return holder;
}

std::string this_process() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("host {}, process {}", host.data(), getpid());
}

}  // namespace

Result<FolderLock> FolderLock::take(const std::string& option, const std::string& folder, FolderLock held) {
  FolderLock taken;
  if (held.is_of(folder)) {
    taken = std::move(held);
  } else {
    taken.file_ = open(path_in(folder).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  }
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  // Some network file systems do not support locks. Their errors are not a reason to reject the folder.
  if (taken.file_ >= 0 && fcntl(taken.file_, F_OFD_SETLK, &whole) != 0 && (errno == EAGAIN || errno == EACCES)) {
    POPRUN_RARE("folder.locked");
    const std::string who = holder_of(folder).who;
    return fail(ErrorCode::kUsage, fmt::format("{} {}: another job is writing to this folder{}; choose a different "
                                               "folder, or wait until that job ends",
                                               option, folder, who.empty() ? "" : fmt::format(" ({})", who)));
  }
  taken.option_ = option;
  taken.folder_ = folder;
  taken.epoch_ = holder_of(folder).epoch + 1;
  const std::string text = fmt::format("{}{}\n{}\n", kEpoch, taken.epoch_, this_process());
  if (taken.file_ >= 0 && pwrite(taken.file_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) {
    static_cast<void>(ftruncate(taken.file_, static_cast<off_t>(text.size())) == 0);
    fsync(taken.file_);  // If this fails, the epoch is known on this machine, and writes to the disk will fail, too.
  }
  return taken;
}

Status FolderLock::check() const {
  const Holder latest = holder_of(folder_);
  if (file_ < 0 || latest.epoch <= epoch_) {
    return {};
  }
  POPRUN_RARE("folder.taken-over");
  return fail(ErrorCode::kUsage,
              fmt::format("{} {}: a later job has taken over this folder ({}), so this one no longer "
                          "writes to it",
                          option_, folder_, latest.who));
}

bool FolderLock::is_of(const std::string& folder) const {
  struct stat ours {};
  struct stat there {};
  return file_ >= 0 && fstat(file_, &ours) == 0 && stat(path_in(folder).c_str(), &there) == 0 &&
         ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : option_(std::move(other.option_)),
      folder_(std::move(other.folder_)),
      file_(std::exchange(other.file_, -1)),
      epoch_(other.epoch_) {}

FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
  std::swap(option_, other.option_);
  std::swap(folder_, other.folder_);
  std::swap(file_, other.file_);
  std::swap(epoch_, other.epoch_);
  return *this;
}

FolderLock::~FolderLock() {
  if (file_ >= 0) {
    close(file_);
  }
}

}  // namespace poprun::launcher
