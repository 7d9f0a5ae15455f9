#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hostio/formats/arrow.h"
#include "hostio/formats/open_file.h"
#include "replica/base/error.h"

/// Finds and reads the values of a column of an Arrow file.
namespace poprun::hostio {

/// A column of a file: lists, outermost first, and what they contain.
struct ArrowColumn {
  std::string name;
  std::size_t node = 0;    ///< Index of its outermost field's node in a record batch.
  std::size_t buffer = 0;  ///< Index of that field's first buffer in a record batch.
  std::vector<ArrowField> lists;
  ArrowField leaf;

  /// Index of the leaf's values in a batch's buffers; those before it are the lists' and the leaf's bitmaps of nulls,
  /// and offsets.
  [[nodiscard]] std::size_t leaf_buffer() const {
    std::size_t at = buffer;
    for (const ArrowField& list : lists) {
      at += list.buffers;
    }
    return at;
  }
};

/// Follows lists to their elements. `node` and `buffer` are the field's in a batch.
ArrowColumn column_of(const ArrowField& field, std::size_t node, std::size_t buffer);

/// Returns whether the column can be a tensor, labels or text.
bool is_useful(const ArrowColumn& column);

/// The elements of some rows of a batch.
struct Elements {
  std::uint64_t first = 0;  ///< Index of the first one in the leaf's values.
  std::uint64_t count = 0;
  std::vector<std::uint64_t>
      row_lengths;  ///< Lengths of the rows' outermost lists; empty if the column is not a kList.
  std::vector<std::uint64_t>
      inner_lengths;  ///< Length of the lists at each deeper level, which is the same for all rows.
};

/// Reads one column of one batch. Errors of all functions: kData if the file is damaged or cannot be read.
class BatchReader {
 public:
  BatchReader(const OpenFile& file, std::string place, const ArrowColumn& column, const ArrowBatch& batch)
      : file_(file), place_(std::move(place)), column_(column), batch_(batch) {}

  /// Finds the elements of `count` rows from `row`, which are all in the file. Further errors: kData if a value is
  /// null, or lists below the outermost differ in length.
  [[nodiscard]] Result<Elements> elements(std::uint64_t row, std::uint64_t count) const;

  /// Reads bytes of the leaf's values.
  [[nodiscard]] Status read_values(std::uint64_t begin, std::span<std::byte> out) const;
  [[nodiscard]] Result<std::vector<std::byte>> values(std::uint64_t begin, std::uint64_t end) const;

  /// Returns where the texts of some rows begin in the leaf's values, and then where the last one ends, which is inside
  /// the values.
  [[nodiscard]] Result<std::vector<std::uint64_t>> text_ends(std::uint64_t row, std::uint64_t count) const;

  [[nodiscard]] tl::unexpected<Error> damaged(std::string_view why) const;

 private:
  [[nodiscard]] Status check_bytes(std::size_t buffer, std::uint64_t begin, std::uint64_t end) const;
  [[nodiscard]] Status check_nulls(std::size_t node, std::size_t buffer) const;
  [[nodiscard]] Result<std::vector<std::uint64_t>> offsets(std::size_t buffer, unsigned width, std::uint64_t first,
                                                           std::uint64_t count) const;
  Status enter_list(std::size_t level, std::size_t buffer, Elements& found) const;
  Status enter_fixed_list(std::size_t level, Elements& found) const;
  [[nodiscard]] std::size_t value_buffer() const { return column_.leaf_buffer() + column_.leaf.buffers - 1; }

  const OpenFile& file_;
  std::string place_;
  const ArrowColumn& column_;
  const ArrowBatch& batch_;
};

/// Calls visit(text) for the texts of some rows, until it returns an error.
template <typename Visit>
Status each_text(const BatchReader& reader, std::uint64_t row, std::uint64_t rows, const Visit& visit) {
  POPRUN_TRY(reader.elements(row, rows));
  POPRUN_ASSIGN(const auto ends, reader.text_ends(row, rows));
  POPRUN_ASSIGN(const std::vector<std::byte> bytes, reader.values(ends.front(), ends.back()));
  for (std::uint64_t i = 0; i < rows; ++i) {
    const auto* begin = reinterpret_cast<const char*>(bytes.data()) + (ends[i] - ends[0]);
    POPRUN_TRY(visit(std::string_view(begin, ends[i + 1] - ends[i])));
  }
  return {};
}

}  // namespace poprun::hostio
