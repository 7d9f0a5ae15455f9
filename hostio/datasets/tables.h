#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hostio/datasets/array_tensors.h"
#include "hostio/datasets/dataset.h"
#include "hostio/datasets/source.h"
#include "replica/base/error.h"

/// Tables of typed columns, such as CSV files, as the named arrays of array_dataset.h: each column becomes one array
/// for training and, if the source has a test part, one for testing.
///
///   features, x      "x"; label, y: "labels"; other columns keep their names (array_dataset.h lists those of tensors)
///   names as labels  the classes are the names in ascending order of their bytes
///   ragged rows      are padded to data.sequence-length with 0, and labels with -1
///
///   text             without tokens and features, the texts form one sequence of bytes, with a line break after each
///                    (token_windows.h)
///
/// The test part is a table of its own. Without one, it is the last rows, data.test-fraction of them (default: 5 %), or
/// the last 5 % of a text's bytes.
namespace poprun::hostio {

/// The source parameters of tables that can contain arrays and text, for DatasetFamily::parameters.
inline constexpr std::array<std::string_view, 9> kTableParameters = {
    "channels", "deviation", "label-type", "mask-token", "masks", "mean", "sequence-length", "task", "test-fraction"};

/// The parameters that change the stored data, for DatasetFamily::stored.
inline constexpr std::array<std::string_view, 4> kStoredTableParameters = {"channels", "label-type", "sequence-length",
                                                                           "test-fraction"};

/// Returns whether a column of this name holds labels.
constexpr bool is_label_name(std::string_view name) {
  return name == "label" || name == "labels" || name == "y";
}

/// Returns whether a column of this name holds inputs, which are numbers even if all of them are integers.
constexpr bool is_feature_name(std::string_view name) {
  return name == "features" || name == "x" || name == "images";
}

/// Elements of a column. kNames are labels; kText is a column called "text".
enum class ColumnKind : std::uint8_t { kIntegers, kNumbers, kNames, kText };

struct TableColumn {
  std::string name;
  ColumnKind kind = ColumnKind::kNumbers;
  bool is_unsigned = false;                    ///< Whether integers are unsigned.
  unsigned width = 4;                          ///< Bytes per element; 8 for names, which are read as class numbers.
  std::vector<std::uint64_t> row_shape{};      ///< For a ragged column, the length of its longest row.
  bool is_ragged = false;                      ///< Rows differ in length.
  std::set<std::string, std::less<>> names{};  ///< All names of a column of kNames.
  std::uint64_t text_bytes = 0;                ///< Size of a column of kText, with a line break after each text.
};

/// The rows of a column to read, and how.
struct ColumnRows {
  std::size_t column = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  std::uint64_t row_elements = 0;          ///< Ragged rows are padded to this length.
  std::byte padding{};                     ///< Each byte of the padding.
  std::span<const std::string> classes{};  ///< For kNames, all names in ascending order: their indices are the classes.
};

/// A file of rows. Immutable, apart from the file.
class Table {
 public:
  Table() = default;
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  virtual ~Table() = default;

  std::string place;  ///< The file, for messages.
  std::uint64_t row_count = 0;
  std::vector<TableColumn> columns;
  std::vector<std::string> notes;
  bool is_seekable = false;  ///< Rows can be read without reading those before them.

  /// Writes little-endian elements, row by row; of kText, all rows, with the line breaks. Requires: `out` has the size
  /// of the rows. Errors: those of the file's format, and kData if the file no longer has the rows that it had.
  [[nodiscard]] virtual Status read(const ColumnRows& rows, std::span<std::byte> out) const = 0;
};

using TablePtr = std::shared_ptr<const Table>;

/// The tables of a source; `test` may be null.
struct Tables {
  TablePtr train;
  TablePtr test;
};

/// Describes and reads the tables' columns as arrays (array_dataset.h) or text. Errors: that of `tables`; kUsage if a
/// parameter is wrong; kData if the tables do not match each other or have too few rows.
Result<proto::Dataset> describe_tables(const Result<Tables>& tables, const Source& source);
Result<std::shared_ptr<const Stored>> read_tables(const Result<Tables>& tables, const Source& source);

/// Finds out what a column of labels contains, while a table is read for the first time. All labels must be numbers, or
/// all must be names.
class LabelScan {
 public:
  /// `type` is data.label-type: "", "class" or "number".
  explicit LabelScan(std::string type) : type_(std::move(type)) {}

  /// Adds a label as it is written in a text file. `place` returns where, for messages. Errors: kData.
  template <typename Place>
  Status add(std::string_view label, const Place& place) {
    if (const char* fault = add(label)) {
      return fail(ErrorCode::kData, place() + ": " + fault);
    }
    return {};
  }
  /// Adds a number.
  void add_number(bool is_integer) {
    seen_number_ = true;
    all_integers_ = all_integers_ && is_integer;
  }

  /// Sets the kind of the column, and its names.
  void finish(TableColumn& column) &&;

 private:
  /// Returns what is wrong with the label, or null.
  const char* add(std::string_view label);

  std::string type_;
  bool seen_number_ = false;
  bool all_integers_ = true;
  std::set<std::string, std::less<>> names_;
};

/// Parses data.label-type. Errors: kUsage.
Result<std::string> label_type(const Source& source);

/// Parses a finite number; returns nothing if the text is something else. Spaces around it are ignored.
std::optional<float> number_in(std::string_view text);
std::optional<std::int64_t> integer_in(std::string_view text);

/// Writes a label as the column's kind requires: an integer or class i64, or a number f32. Requires: the label is one
/// that the scan of the column has seen. Returns false if it is not, because the file has changed.
bool write_label(std::string_view label, ColumnKind kind, std::span<const std::string> classes, std::byte* out);

/// Returns the error for a file that changed between two passes over it.
tl::unexpected<Error> changed_while_read(std::string_view place);

}  // namespace poprun::hostio
