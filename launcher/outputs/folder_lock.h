#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "replica/base/error.h"

namespace poprun::launcher {

/// A job's exclusive use of a folder, recorded in the folder's file `.poprun-emu.lock`:
///
///     epoch 3
///     host node-7, process 4711
///
/// The file is open for writing and has an open-file-description lock (fcntl), which NFS passes on to its server. (A
/// lock on the folder itself, by flock, would bind only the processes of one NFS client.) Each attempt of a job raises
/// the epoch. If the file system supports no locks, a second launcher is not refused; it then has the higher epoch, and
/// `check` fences off the first one.
class FolderLock {
 public:
  /// Locks `folder`, which must exist, and raises its epoch. `held` is the lock of an earlier attempt, if there was
  /// one. If `held` is a lock on `folder`, it is not released, so that no other job can take the folder in between. If
  /// the file cannot be created or written, as on a full disk, the function succeeds, but the lock has no effect.
  /// `option` names the folder in messages. Errors: kUsage if another job has locked the folder; the message names that
  /// job's host and process.
  static Result<FolderLock> take(const std::string& option, const std::string& folder, FolderLock held = {});

  FolderLock() noexcept;

  /// Checks that no later attempt has taken the folder. Call this before a file gets its final name. Reads a small
  /// file. Threads: any, but not while the object moves. Errors: kUsage, which names the host and process of the later
  /// attempt.
  [[nodiscard]] Status check() const;

  /// Returns whether this object has taken `folder`, and the folder has not been removed or replaced since.
  [[nodiscard]] bool is_of(const std::string& folder) const;

  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  [[nodiscard]] int descriptor() const { return file_ ? fileno(file_.get()) : -1; }

  std::string option_;
  std::string folder_;
  std::unique_ptr<std::FILE, Close> file_;  ///< Null without a lock.
  std::uint64_t epoch_ = 0;
};

}  // namespace poprun::launcher
