#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <string_view>

#include "replica/base/error.h"

namespace poprun::launcher {

/// Returns the error for a file that cannot be written. `reason` is the errno. If the disk or a quota is full, the
/// error records a shortage of unknown size.
tl::unexpected<Error> cannot_write(const std::string& path, int reason);

/// Writes all `bytes` at `offset` of an open file. `path` is the file's name in messages.
Status write_at(int file, const std::string& path, std::string_view bytes, std::uint64_t offset);

/// Ensures that the creation and renaming of files in a folder survive a crash. Errors: kInfrastructure.
Status sync_folder(const std::string& folder);

/// A file of lines, the last of which is always complete. While the disk is full, new lines wait in memory.
class GrowingFile {
 public:
  /// Lines that would exceed `waiting_bytes_max` while waiting are left out. A later line says how many were.
  explicit GrowingFile(std::string path, std::size_t waiting_bytes_max = SIZE_MAX)
      : path_(std::move(path)), waiting_bytes_max_(waiting_bytes_max) {}
  GrowingFile(GrowingFile&& other) noexcept;
  GrowingFile& operator=(GrowingFile&& other) noexcept;
  ~GrowingFile();

  /// Appends complete lines. They reach the file when `flush` succeeds.
  void append(std::string_view lines);

  /// Keeps the present contents of the file. Call before the first `flush`.
  void go_on() { goes_on_ = true; }

  /// Writes the waiting lines. Creates the file if it does not exist, and clears its earlier contents unless `go_on`
  /// was called. Errors: kInfrastructure if the file accepts no more data; the message says why. Can be called again.
  Status flush();

 private:
  Status open();
  Status write_waiting();

  std::string path_;
  std::size_t waiting_bytes_max_;
  bool goes_on_ = false;
  int file_ = -1;
  std::int64_t size_ = 0;  ///< Size of the complete lines in the file.
  std::string waiting_;
  std::uint64_t left_out_ = 0;  ///< Number of lines left out.
};

/// Writes files in another thread, since large ones take minutes on a slow disk, and retries after failures. The object
/// itself belongs to one thread.
class Saving {
 public:
  /// Runs in the other thread, and again after each failure. Should return soon after `given_up` becomes true.
  using Write = std::function<Status(const std::atomic<bool>& given_up)>;

  explicit Saving(Write write);
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

  Write write_;
  std::atomic<bool> given_up_ = false;
  std::future<Status> running_;
  std::optional<Error> failure_;
  double failed_at_ = 0;
  bool done_ = false;
};

}  // namespace poprun::launcher
