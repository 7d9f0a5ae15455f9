#pragma once

#include <cstddef>
#include <cstdint>
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

}  // namespace poprun::launcher
