#include "launcher/outputs/folder_lock.h"

#include <algorithm>
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

/// Reads the lock file. Reopens it each time, because an NFS client revalidates its cache only when it opens a file.
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

FolderLock::FolderLock() noexcept = default;

Result<FolderLock> FolderLock::take(const std::string& option, const std::string& folder, FolderLock held) {
  FolderLock taken;
  if (held.is_of(folder)) {
    taken = std::move(held);
  } else {
    const int opened = open(path_in(folder).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    taken.file_.reset(opened < 0 ? nullptr : fdopen(opened, "r+"));
  }
  const int file = taken.descriptor();
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  // Some network file systems do not support locks. Their errors are not a reason to reject the folder.
  if (file >= 0 && fcntl(file, F_OFD_SETLK, &whole) != 0 && (errno == EAGAIN || errno == EACCES)) {
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
  if (file >= 0 && pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) {
    static_cast<void>(ftruncate(file, static_cast<off_t>(text.size())) == 0);
    fsync(file);  // If this fails, this machine still knows the epoch, and later writes to the disk will fail, too.
  }
  return taken;
}

Status FolderLock::check() const {
  const Holder latest = holder_of(folder_);
  if (!file_ || latest.epoch <= epoch_) {
    return {};
  }
  POPRUN_RARE("folder.taken-over");
  return fail(ErrorCode::kUsage,
              fmt::format("{} {}: a later job has taken over this folder ({}), so this job no longer "
                          "writes to it",
                          option_, folder_, latest.who));
}

bool FolderLock::is_of(const std::string& folder) const {
  struct stat ours {};
  struct stat there {};
  return file_ && fstat(descriptor(), &ours) == 0 && stat(path_in(folder).c_str(), &there) == 0 &&
         ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

}  // namespace poprun::launcher
