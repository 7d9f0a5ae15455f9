#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "launcher/outputs/disk_thread.h"
#include "replica/base/error.h"

namespace poprun::launcher {

/// Returns the error for a file that cannot be written. `reason` is the errno. If the disk or a quota is full, the
/// error records a shortage of unknown size.
tl::unexpected<Error> cannot_write(const std::string& path, int reason);

/// Writes all `bytes` at `offset` of an open file. `path` is the file's name in messages.
Status write_at(int file, const std::string& path, std::string_view bytes, std::uint64_t offset);

/// Ensures that the creation and renaming of files in a folder survive a crash. Errors: kInfrastructure.
Status sync_folder(const std::string& folder);

/// Creates a folder and its missing parents, all of which then survive a crash.
std::error_code make_folder(const std::string& folder);

/// A file of lines, the last of which is always complete. While the disk is full or hangs, new lines wait in memory. A
/// file of binary records works in the same way.
class GrowingFile {
 public:
  enum class Unit : std::uint8_t { kLine, kRecord };

  /// While lines wait, those that would exceed `waiting_bytes_max` are left out; a later line states how many. `disk`
  /// must outlive this.
  GrowingFile(DiskThread& disk, std::string path, std::size_t waiting_bytes_max = SIZE_MAX)
      : disk_(&disk), waiting_bytes_max_(waiting_bytes_max), lines_(std::make_shared<Lines>(std::move(path))) {}

  /// Instead of lines, a file of Unit::kRecord contains records that were appended whole.
  GrowingFile(DiskThread& disk, std::string path, Unit unit) : GrowingFile(disk, std::move(path)) {
    lines_->unit = unit;
  }

  /// Appends complete lines, which a later `flush` writes to the file.
  void append(std::string_view lines);

  /// Keeps the current contents of the file. Call before the first `flush`.
  void go_on() { lines_->goes_on = true; }

  /// Writes the waiting lines. Creates the file if it does not exist, and clears its earlier contents unless `go_on`
  /// was called. If writing takes longer than `patience`, returns before it is done. Errors: kInfrastructure if the
  /// file accepts no more data; the message says why. After an error, call this again.
  Status flush(std::chrono::milliseconds patience = DiskThread::kMoment);

  /// Begins to write all lines. Never waits, not even for an earlier flush.
  void hand_over();

  /// Returns an upper bound on the bytes that have not reached the file.
  [[nodiscard]] std::size_t waiting() const { return waiting_bytes_ + fresh_.size(); }

  /// Returns whether every line has reached the file.
  [[nodiscard]] bool flushed() const { return fresh_.empty() && !running_.valid() && waiting_bytes_ == 0; }

  /// Writes the lines that have been handed over. All of them then survive a crash, unless the file's name is new and
  /// its folder is not synced. Call this only on the disk's thread.
  Status finish() { return lines_->finish(); }

 private:
  /// The disk's thread owns the lines while a task is running.
  struct Lines {
    explicit Lines(std::string name) : path(std::move(name)) {}
    Lines(const Lines&) = delete;
    Lines& operator=(const Lines&) = delete;
    ~Lines();

    Status write();
    Status finish();
    Status open();
    Status write_waiting();

    const std::string path;
    Unit unit = Unit::kLine;
    bool goes_on = false;
    int file = -1;
    std::int64_t size = 0;  ///< Size of the complete lines in the file.
    std::string waiting;
    std::uint64_t left_out = 0;  ///< Number of lines left out.
  };

  DiskThread* disk_;
  std::size_t waiting_bytes_max_;
  std::string fresh_;  ///< Lines appended since the last flush began.
  std::uint64_t left_out_ = 0;
  std::size_t waiting_bytes_ = 0;  ///< Size of Lines::waiting when it was last known.
  std::shared_ptr<Lines> lines_;
  std::shared_future<Status> running_;
};

/// Writes files on the disk's thread, since large ones take minutes on a slow disk, and retries after failures. The
/// object itself belongs to one thread.
class Saving {
 public:
  /// Runs on the disk's thread, and again after each failure. Should return soon after `given_up` becomes true.
  using Write = std::function<Status(const std::atomic<bool>& given_up)>;

  Saving(DiskThread& disk, Write write);
  Saving(const Saving&) = delete;
  Saving& operator=(const Saving&) = delete;
  /// Cancels the write in progress and waits for its end.
  ~Saving();

  /// Polls for the result, and retries 1 s after a failure. Call this often. `now` is in seconds of a monotonic clock.
  void refresh(double now);

  [[nodiscard]] bool done() const { return done_; }
  /// Returns the reason for the last failure, or nothing before the first failure or after a success.
  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }

 private:
  void begin();

  DiskThread& disk_;
  Write write_;
  std::atomic<bool> given_up_ = false;
  std::shared_future<Status> running_;
  std::optional<Error> failure_;
  double failed_at_ = 0;
  bool done_ = false;
};

}  // namespace poprun::launcher
