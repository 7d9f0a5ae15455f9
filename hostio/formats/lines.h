#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hostio/formats/open_file.h"
#include "replica/base/error.h"

/// Reads text files in memory that does not grow with the file.
namespace poprun::hostio {

/// Largest record of a text file, in bytes: an unclosed quote is reported here, not at the end of a large file.
inline constexpr std::size_t kRecordBytesMax = std::size_t{16} << 20;

/// Number of readable bytes after any view of the text, as simdjson requires.
inline constexpr std::size_t kTextPadding = 64;

/// A file that is read from beginning to end through a window of memory.
class TextWindow {
 public:
  /// Opens the file and skips a UTF-8 byte order mark. Errors: those of OpenFile::open, and kData if the file begins
  /// with a byte order mark of UTF-16 or with the magic number of gzip.
  static Result<TextWindow> open(const std::filesystem::path& file, const FileScope& scope);

  /// The bytes that have been read and not dropped.
  [[nodiscard]] std::string_view text() const { return {bytes_.data() + begin_, end_ - begin_}; }
  /// Drops the first `bytes` of the text.
  void drop(std::size_t bytes) { begin_ += bytes; }
  /// Reads more text; earlier views of it become invalid. Returns false at the end of the file. Errors: kData if the
  /// file cannot be read, or the text already holds kRecordBytesMax.
  Result<bool> more();

 private:
  TextWindow(OpenFile opened, std::string name, FileScope scope)
      : opened_(std::move(opened)), name_(std::move(name)), scope_(std::move(scope)) {}

  OpenFile opened_;
  std::string name_;
  FileScope scope_;
  std::vector<char> bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t offset_ = 0;  ///< Bytes of the file read so far.
};

/// Reads the lines of a text file.
class LineReader {
 public:
  static Result<LineReader> open(const std::filesystem::path& file, const FileScope& scope);

  /// Sets `line` to the next line that is not blank, without its end. Returns false at the end of the file. The view is
  /// valid until the next call, and kTextPadding readable bytes follow it. Errors: those of TextWindow::more.
  Result<bool> next(std::string_view& line);
  /// Number of the last line returned, counted from 1.
  [[nodiscard]] std::uint64_t number() const { return number_; }

 private:
  explicit LineReader(TextWindow window) : window_(std::move(window)) {}

  TextWindow window_;
  std::uint64_t number_ = 0;
};

}  // namespace poprun::hostio
