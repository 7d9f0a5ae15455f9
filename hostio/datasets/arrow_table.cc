#include "hostio/datasets/arrow_table.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hostio/datasets/arrow_column.h"
#include "hostio/formats/arrow.h"
#include "hostio/formats/printable.h"
#include "replica/base/text.h"

namespace poprun::hostio {
namespace {

using Kind = ArrowField::Kind;

constexpr std::uint64_t kChunkRowsMax = 1 << 16;
constexpr std::uint64_t kChunkBytes = 4 << 20;
constexpr std::uint64_t kChunkTexts = 64;

/// A file of the table.
struct ArrowPart {
  std::filesystem::path path;
  std::vector<ArrowColumn> columns;  ///< The columns of the table, in its order.
  std::vector<ArrowBatch> batches;
};

class ArrowTable final : public Table {
 public:
  explicit ArrowTable(FileScope scope) : scope_(std::move(scope)) { is_seekable = true; }

  Status add_file(const std::filesystem::path& path, const Source& source);
  Status scan_columns(const std::string& type);
  [[nodiscard]] Status read(const ColumnRows& wanted, std::span<std::byte> out) const override;

 private:
  /// Calls visit(reader, row in the batch, rows) for pieces of the wanted rows.
  template <typename Visit>
  Status each_piece(std::size_t column, std::uint64_t first, std::uint64_t count, std::uint64_t piece_rows,
                    const Visit& visit) const;
  Status scan_numbers(std::size_t column, const std::string& label_type);
  Status scan_texts(std::size_t column, const std::string& type);
  Status write_numbers(const BatchReader& reader, const ColumnRows& wanted, std::uint64_t row, std::uint64_t rows,
                       std::span<std::byte> out) const;

  FileScope scope_;
  std::vector<ArrowPart> parts_;
};

Status ArrowTable::add_file(const std::filesystem::path& path, const Source& source) {
  POPRUN_ASSIGN(ArrowFile listed, list_arrow(path, source.scope));
  ArrowPart part{.path = path, .columns = {}, .batches = std::move(listed.batches)};
  std::vector<std::string> others;
  std::size_t node = 0;
  std::size_t buffer = 0;
  for (const ArrowField& field : listed.fields) {
    ArrowColumn column = column_of(field, node, buffer);
    node += arrow_nodes(field);
    buffer += arrow_buffers(field);
    if (is_useful(column)) {
      part.columns.push_back(std::move(column));
    } else {
      others.push_back(printable(field.name));
    }
  }
  for (const ArrowBatch& batch : part.batches) {
    if (__builtin_add_overflow(row_count, batch.rows, &row_count) || row_count > std::uint64_t{1} << 40) {
      return fail(ErrorCode::kData, fmt::format("{}: expected at most 2^40 rows; write the file again", path.string()));
    }
  }
  if (parts_.empty()) {
    place = path.string();
    if (!others.empty()) {
      notes.push_back(fmt::format("{}: {} {} not read: only numbers, lists of numbers, labels and \"text\" are read",
                                  place, fmt::join(others, ", "), others.size() == 1 ? "is" : "are"));
    }
  } else {
    const auto is_like = [](const ArrowColumn& a, const ArrowColumn& b) {
      return a.name == b.name && a.lists.size() == b.lists.size() && a.leaf.kind == b.leaf.kind &&
             a.leaf.width == b.leaf.width && a.leaf.is_signed == b.leaf.is_signed;
    };
    if (!std::ranges::equal(part.columns, parts_[0].columns, is_like)) {
      return fail(
          ErrorCode::kData,
          fmt::format("{}: expected the columns of {}, in the same order and of the same types", path.string(), place));
    }
  }
  parts_.push_back(std::move(part));
  return {};
}

template <typename Visit>
Status ArrowTable::each_piece(std::size_t column, std::uint64_t first, std::uint64_t count, std::uint64_t piece_rows,
                              const Visit& visit) const {
  std::uint64_t begin = 0;  // Row of the table at which the batch begins.
  for (const ArrowPart& part : parts_) {
    std::optional<OpenFile> file;
    for (const ArrowBatch& batch : part.batches) {
      const std::uint64_t from = std::max(begin, first);
      const std::uint64_t to = std::min(begin + batch.rows, first + count);
      if (from < to && !file) {
        POPRUN_ASSIGN(OpenFile opened, OpenFile::open(part.path, scope_));
        file.emplace(std::move(opened));
      }
      for (std::uint64_t row = from; row < to; row += piece_rows) {
        const BatchReader reader(*file, part.path.string(), part.columns[column], batch);
        POPRUN_TRY(visit(reader, row - begin, std::min(piece_rows, to - row)));
      }
      begin += batch.rows;
    }
  }
  return {};
}

Status ArrowTable::scan_columns(const std::string& type) {
  for (std::size_t c = 0; c < parts_[0].columns.size(); ++c) {
    const ArrowColumn& column = parts_[0].columns[c];
    columns.push_back({.name = column.name});
    POPRUN_TRY(column.leaf.kind == Kind::kText
                   ? scan_texts(c, type)
                   : scan_numbers(c, is_label_name(column.name) && column.lists.empty() ? type : ""));
  }
  if (columns.empty() || row_count == 0) {
    return fail(ErrorCode::kData,
                fmt::format("{}: expected columns such as input_ids and labels, text, or features and "
                            "label, found {}",
                            place, row_count == 0 ? "no rows" : "only columns of other types"));
  }
  return {};
}

/// Sets the type and the shape of a column of numbers. `label_type` is data.label-type if these are labels.
Status ArrowTable::scan_numbers(std::size_t c, const std::string& label_type) {
  const ArrowColumn& column = parts_[0].columns[c];
  TableColumn& facts = columns[c];
  const bool is_bytes = column.leaf.kind == Kind::kInteger && column.leaf.width == 1 && !column.leaf.is_signed;
  const bool is_float = column.leaf.kind == Kind::kFloat;
  if (is_float && label_type == "class") {
    return fail(ErrorCode::kData,
                fmt::format("{}: column '{}': data.label-type = class, but the labels are floats; cast "
                            "them to integers",
                            place, column.name));
  }
  if (is_float || label_type == "number" || (is_feature_name(column.name) && !is_bytes)) {
    facts.kind = ColumnKind::kNumbers;
    facts.width = is_float ? column.leaf.width : 4;
  } else {
    facts.kind = ColumnKind::kIntegers;
    facts.width = column.leaf.kind == Kind::kBool ? 1 : column.leaf.width;
    facts.is_unsigned = column.leaf.kind == Kind::kBool || !column.leaf.is_signed;
  }
  bool is_first = true;
  std::uint64_t shortest = 0;
  const Status scanned = each_piece(
      c, 0, row_count, kChunkRowsMax, [&](const BatchReader& reader, std::uint64_t row, std::uint64_t rows) -> Status {
        POPRUN_ASSIGN(Elements found, reader.elements(row, rows));
        std::vector<std::uint64_t> shape = std::move(found.inner_lengths);
        std::uint64_t least = 0;
        std::uint64_t most = 0;
        if (!column.lists.empty()) {
          const bool is_fixed = found.row_lengths.empty();
          least = is_fixed ? column.lists[0].list_size : std::ranges::min(found.row_lengths);
          most = is_fixed ? column.lists[0].list_size : std::ranges::max(found.row_lengths);
          shape.insert(shape.begin(), most);
        }
        const bool is_alike =
            is_first || shape.size() < 2 || std::equal(shape.begin() + 1, shape.end(), facts.row_shape.begin() + 1);
        if (!is_alike) {
          return reader.damaged("nested lists must have equal lengths; only the outermost may differ");
        }
        if (is_first) {
          facts.row_shape = shape;
          shortest = least;
        } else if (!shape.empty()) {
          facts.row_shape[0] = std::max(facts.row_shape[0], most);
          shortest = std::min(shortest, least);
        }
        is_first = false;
        return {};
      });
  POPRUN_TRY(scanned);
  facts.is_ragged = !facts.row_shape.empty() && shortest != facts.row_shape[0];
  constexpr std::uint64_t kRowElementsMax = std::uint64_t{1} << 32;
  std::uint64_t elements = 1;
  for (const std::uint64_t dim : facts.row_shape) {
    if (__builtin_mul_overflow(elements, dim, &elements) || elements > kRowElementsMax) {
      return fail(ErrorCode::kData, fmt::format("{}: column '{}': rows of [{}] are too large", place, column.name,
                                                fmt::join(facts.row_shape, ", ")));
    }
  }
  return {};
}

/// Finds the names of labels, or the size of the text.
Status ArrowTable::scan_texts(std::size_t c, const std::string& type) {
  const ArrowColumn& column = parts_[0].columns[c];
  TableColumn& facts = columns[c];
  facts.kind = ColumnKind::kText;
  LabelScan labels(type);
  const bool is_label = is_label_name(column.name);
  std::uint64_t at = 0;
  const Status scanned = each_piece(c, 0, row_count, is_label ? kChunkRowsMax : kChunkTexts,
                                    [&](const BatchReader& reader, std::uint64_t row, std::uint64_t rows) -> Status {
                                      if (!is_label) {
                                        POPRUN_TRY(reader.elements(row, rows));
                                        POPRUN_ASSIGN(const auto ends, reader.text_ends(row, rows));
                                        facts.text_bytes += ends.back() - ends.front() + rows;
                                        return {};
                                      }
                                      return each_text(reader, row, rows, [&](std::string_view text) {
                                        return labels.add(text, [&, row_number = at++] {
                                          return fmt::format("{}: row {}, column '{}'", place, row_number, column.name);
                                        });
                                      });
                                    });
  POPRUN_TRY(scanned);
  if (is_label) {
    std::move(labels).finish(facts);
  }
  return {};
}

/// Returns element `i` of raw leaf values as a float.
float float_of(const std::byte* values, const ArrowField& leaf, std::uint64_t i) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, values + i * leaf.width, leaf.width);
  const unsigned unused = 64 - 8 * leaf.width;
  return leaf.is_signed ? static_cast<float>(static_cast<std::int64_t>(bits << unused) >> unused)
                        : static_cast<float>(bits);
}

Status ArrowTable::write_numbers(const BatchReader& reader, const ColumnRows& wanted, std::uint64_t row,
                                 std::uint64_t rows, std::span<std::byte> out) const {
  const TableColumn& facts = columns[wanted.column];
  const ArrowField& leaf = parts_[0].columns[wanted.column].leaf;
  POPRUN_ASSIGN(const Elements found, reader.elements(row, rows));
  const bool is_raw = leaf.kind == Kind::kFloat || (leaf.kind == Kind::kInteger && facts.kind == ColumnKind::kIntegers);
  const bool is_whole = found.count == rows * wanted.row_elements;
  scope_.advance(out.size());
  if (is_raw && is_whole) {
    return reader.read_values(found.first * leaf.width, out);
  }
  // Bits of booleans start within a byte.
  const bool is_bits = leaf.kind == Kind::kBool;
  const std::uint64_t begin = is_bits ? found.first / 8 : found.first * leaf.width;
  const std::uint64_t end = is_bits ? (found.first + found.count + 7) / 8 : (found.first + found.count) * leaf.width;
  POPRUN_ASSIGN(const std::vector<std::byte> values, reader.values(begin, end));
  const auto write = [&](std::uint64_t i, std::byte* to) {
    if (is_bits) {
      const std::uint64_t bit = found.first % 8 + i;
      const bool value = (values[bit / 8] >> (bit % 8) & std::byte{1}) != std::byte{0};
      const float number = value ? 1 : 0;
      facts.kind == ColumnKind::kNumbers ? std::memcpy(to, &number, sizeof(number)) : std::memset(to, value ? 1 : 0, 1);
    } else if (is_raw) {
      std::memcpy(to, values.data() + i * leaf.width, leaf.width);
    } else {
      const float number = float_of(values.data(), leaf, i);
      std::memcpy(to, &number, sizeof(number));
    }
  };
  std::uint64_t element = 0;
  for (std::uint64_t i = 0; i < rows; ++i) {
    // tables.cc accepts no lists within ragged rows.
    const std::uint64_t length = is_whole                    ? wanted.row_elements
                                 : found.row_lengths.empty() ? found.count / rows
                                                             : found.row_lengths[i];
    if (length > wanted.row_elements || length > found.count - element) {
      return changed_while_read(place);
    }
    for (std::uint64_t e = 0; e < length; ++e) {
      write(element++, out.data() + (i * wanted.row_elements + e) * facts.width);
    }
  }
  return {};
}

Status ArrowTable::read(const ColumnRows& wanted, std::span<std::byte> out) const {
  const TableColumn& facts = columns[wanted.column];
  const ArrowColumn& column = parts_[0].columns[wanted.column];
  const std::uint64_t row_bytes = wanted.row_elements * facts.width;
  std::size_t at = 0;
  if (column.leaf.kind != Kind::kText) {
    std::ranges::fill(out, wanted.padding);
    const std::uint64_t rows_at_once =
        std::clamp<std::uint64_t>(kChunkBytes / std::max<std::uint64_t>(row_bytes, 1), 1, kChunkRowsMax);
    return each_piece(wanted.column, wanted.first, wanted.count, rows_at_once,
                      [&](const BatchReader& reader, std::uint64_t row, std::uint64_t rows) {
                        const auto to = out.subspan(at, rows * row_bytes);
                        at += to.size();
                        return write_numbers(reader, wanted, row, rows, to);
                      });
  }
  return each_piece(wanted.column, wanted.first, wanted.count,
                    facts.kind == ColumnKind::kText ? kChunkTexts : kChunkRowsMax,
                    [&](const BatchReader& reader, std::uint64_t row, std::uint64_t rows) {
                      return each_text(reader, row, rows, [&](std::string_view text) -> Status {
                        scope_.advance(text.size() + 1);
                        if (facts.kind != ColumnKind::kText) {
                          const bool is_known = write_label(text, facts.kind, wanted.classes, out.data() + at);
                          at += row_bytes;
                          return is_known ? Status() : changed_while_read(place);
                        }
                        if (text.size() + 1 > out.size() - at) {
                          return changed_while_read(place);
                        }
                        std::ranges::copy(std::as_bytes(std::span(text)), out.data() + at);
                        out[at + text.size()] = std::byte{'\n'};
                        at += text.size() + 1;
                        return {};
                      });
                    });
}

}  // namespace

Result<TablePtr> scan_arrow(const std::vector<std::filesystem::path>& files, const Source& source) {
  POPRUN_ASSIGN(const std::string type, label_type(source));
  const auto table = std::make_shared<ArrowTable>(source.scope);
  for (const std::filesystem::path& file : files) {
    POPRUN_TRY(table->add_file(file, source));
  }
  POPRUN_TRY(table->scan_columns(type));
  return table;
}

}  // namespace poprun::hostio
