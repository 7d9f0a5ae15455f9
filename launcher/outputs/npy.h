#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "replica/base/error.h"

namespace poprun::launcher {

/// A .npy file that is filled in any order and appears either complete or not at all. The format is NumPy's version
/// 1.0, https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html. No data is kept in memory.
class NpyFile {
 public:
  /// Creates the file and reserves space for the whole array, at `path` with ".part" appended. `type` is "f32", "f16",
  /// "i32" or "u8". Errors: kInfrastructure if the file cannot be written; kBug if the type is unknown.
  static Result<NpyFile> create(const std::string& path, std::string_view type, std::span<const std::int64_t> shape);

  NpyFile(NpyFile&&) noexcept = default;
  NpyFile& operator=(NpyFile&&) noexcept = default;
  /// Removes a file that was not finished.
  ~NpyFile();

  /// Writes row-major little-endian bytes, `offset` bytes from the first element. Each byte must be written exactly
  /// once. Errors: kInfrastructure if the disk accepts no more data; kBug if the bytes are outside the array.
  Status write(std::uint64_t offset, std::string_view data);

  /// Returns the size of the data written so far, as a number of whole entries of the first dimension.
  [[nodiscard]] std::uint64_t rows_written() const { return bytes_written_ / row_bytes_; }

  /// Gives the file its final name. Errors: kInfrastructure, as for `write`; kBug if bytes are missing.
  Status finish();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  NpyFile() = default;
  [[nodiscard]] std::string temporary() const { return path_ + ".part"; }
  [[nodiscard]] tl::unexpected<Error> failed() const;

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;  ///< Null after `finish` or a move.
  std::uint64_t header_bytes_ = 0;
  std::uint64_t data_bytes_ = 0;
  std::uint64_t row_bytes_ = 1;
  std::uint64_t bytes_written_ = 0;
};

}  // namespace poprun::launcher
