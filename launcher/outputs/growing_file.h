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

/// The error of a file that does not take bytes, for errno `reason`. It has a shortage, of unknown
/// size, where the disk or a quota is full.
Status cannot_write(const std::string& path, int reason);

/// A file of lines that grows. Where the disk is full its lines wait in memory, and the file ends
/// with a whole one all the same.
class GrowingFile {
 public:
  /// `waiting_bytes_max`: lines that wait beyond it are left out, with a line that says how many
  /// once the file takes lines again.
  explicit GrowingFile(std::string path, std::size_t waiting_bytes_max = SIZE_MAX)
      : path_(std::move(path)), waiting_bytes_max_(waiting_bytes_max) {}
  GrowingFile(GrowingFile&& other) noexcept;
  GrowingFile& operator=(GrowingFile&& other) noexcept;
  ~GrowingFile();

  /// Whole lines. They are in the file once `flush` succeeds.
  void append(std::string_view lines);

  /// What the file holds already stays. Before the first `flush`.
  void go_on() { goes_on_ = true; }

  /// Makes the file where it is not there yet; what it held before is gone, unless it goes on.
  /// Errors:
  /// kInfrastructure, it takes no more; says why. Can be tried again.
  Status flush();

 private:
  Status open();
  Status write_waiting();

  std::string path_;
  std::size_t waiting_bytes_max_;
  bool goes_on_ = false;
  int file_ = -1;
  std::int64_t size_ = 0;  ///< Of the whole lines in the file.
  std::string waiting_;
  std::uint64_t left_out_ = 0;  ///< Lines.
};

/// Files that are written by a thread of their own, since a slow disk takes minutes for large ones,
/// and tried again where they cannot be. Belongs to one thread.
class Saving {
 public:
  /// Runs in the other thread, again after each failure. Should come back soon once `given_up`.
  using Write = std::function<Status(const std::atomic<bool>& given_up)>;

  /// Begins to write.
  explicit Saving(Write write);
  Saving(const Saving&) = delete;
  Saving& operator=(const Saving&) = delete;
  /// Gives up what is under way, and waits for that.
  ~Saving();

  /// To be called often: sees what came of it, and tries again a second after a failure. `now` is
  /// seconds of a clock that never jumps.
  void refresh(double now);

  [[nodiscard]] bool done() const { return done_; }
  /// Why the last try failed; nothing before the first has, and once it is done.
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
