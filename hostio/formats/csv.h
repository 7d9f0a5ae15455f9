#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hostio/formats/lines.h"
#include "replica/base/error.h"

namespace poprun::hostio {

/// Reads separated values (RFC 4180): quoted fields may contain separators, line breaks and doubled quotes. The
/// separator is the one of `,`, `;` and tab that is most frequent in the first record, the header.
class CsvReader {
 public:
  /// Errors: those of TextWindow::open; kData if the header has fewer than two columns.
  static Result<CsvReader> open(const std::filesystem::path& file, const FileScope& scope);

  [[nodiscard]] const std::vector<std::string>& header() const { return header_; }

  /// Reads the next record that is not a blank line. Returns false at the end of the file. The fields are valid until
  /// the next call. Errors: kData, with the line, if the record does not have as many fields as the header, or a quote
  /// is misplaced or missing.
  Result<bool> next(std::vector<std::string_view>& fields);
  /// Number of the line in which the last record begins, counted from 1.
  [[nodiscard]] std::uint64_t line() const { return line_; }
  /// Returns "FILE: line 7, column 'price'", for messages about a field of the last record.
  [[nodiscard]] std::string place(std::size_t column) const;

 private:
  CsvReader(TextWindow window, std::string name) : window_(std::move(window)), name_(std::move(name)) {}

  /// Reads a record of any number of fields.
  Result<bool> record(std::vector<std::string_view>& fields);
  Result<std::size_t> record_end();
  [[nodiscard]] std::string_view unquoted(std::string_view field);

  TextWindow window_;
  std::string name_;
  std::vector<std::string> header_;
  char separator_ = '\0';      ///< Not yet known while the header is read.
  std::size_t used_ = 0;       ///< Bytes of the window that belong to the last record.
  std::vector<char> scratch_;  ///< The last record's fields that contain doubled quotes.
  std::uint64_t line_ = 0;     ///< Line of the last record.
  std::uint64_t next_line_ = 1;
};

}  // namespace poprun::hostio
