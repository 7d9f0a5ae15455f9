#include "hostio/formats/csv.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "hostio/datasets/dataset.h"
#include "hostio/datasets/tables.h"
#include "hostio/formats/printable.h"
#include "replica/base/text.h"

/// "csv:FILE" or "csv:TRAIN,test=TEST": a table with a header. One column is the label; the others are features, all
/// numbers, which form the images [F]. The label is the column data.label-column, or `label`, or the last one. Memory
/// use depends on the numbers, not on the text: 4 bytes per feature.
namespace poprun::hostio::families {
namespace {

constexpr std::string_view kCsvPrefix = "csv:";
constexpr std::array<std::string_view, 5> kCsvParameters = {"deviation", "label-column", "label-type", "mean",
                                                            "test-fraction"};
constexpr std::array<std::string_view, 3> kStoredCsvParameters = {"label-column", "label-type", "test-fraction"};
/// Columns of a CsvTable.
enum CsvColumn : std::uint8_t { kFeatures, kLabel };

class CsvTable final : public Table {
 public:
  /// Reads the whole file once, to count its rows and check its fields.
  static Result<std::shared_ptr<CsvTable>> scan(const std::filesystem::path& file, const Source& source);

  /// Checks that this test table has the columns of the training table. Errors: kData.
  [[nodiscard]] Status check_like(const CsvTable& train) const;

  [[nodiscard]] Status read(const ColumnRows& rows, std::span<std::byte> out) const override;

 private:
  CsvTable(std::filesystem::path file, FileScope scope) : file_(std::move(file)), scope_(std::move(scope)) {}

  Status choose_label(const CsvReader& reader, const Source& source);
  [[nodiscard]] Status check_features(const CsvReader& reader, const std::vector<std::string_view>& fields) const;

  std::filesystem::path file_;
  FileScope scope_;
  std::vector<std::string> header_;
  std::size_t label_ = 0;  ///< Column of the file.
};

Status CsvTable::choose_label(const CsvReader& reader, const Source& source) {
  const std::vector<std::string>& header = reader.header();
  const auto given = source.parameters.find("label-column");
  const auto found = std::ranges::find(header, given == source.parameters.end() ? "label" : given->second);
  if (found == header.end() && given != source.parameters.end()) {
    return fail(ErrorCode::kData, fmt::format("{}: no column is called '{}' (data.label-column); {}", place,
                                              given->second, suggestion(given->second, header)));
  }
  label_ = found == header.end() ? header.size() - 1 : static_cast<std::size_t>(found - header.begin());
  if (std::ranges::count(header, header[label_]) > 1) {
    return fail(ErrorCode::kData, fmt::format("{}: several columns are called '{}', the label; rename the others",
                                              place, printable(header[label_])));
  }
  if (given == source.parameters.end()) {
    notes.push_back(fmt::format("{}: the label is column '{}'; set data.label-column to choose a different one", place,
                                printable(header[label_])));
  }
  return {};
}

Status CsvTable::check_features(const CsvReader& reader, const std::vector<std::string_view>& fields) const {
  for (std::size_t column = 0; column < fields.size(); ++column) {
    if (column == label_ || number_in(fields[column])) {
      continue;
    }
    const bool is_missing = trimmed(fields[column]).empty();
    return fail(ErrorCode::kData,
                is_missing
                    ? fmt::format("{}: the value is missing; fill it in or remove the row", reader.place(column))
                    : fmt::format("{}: expected a number that fits in float32, found '{}'; replace it, or remove "
                                  "the column",
                                  reader.place(column), printable(fields[column])));
  }
  return {};
}

Status CsvTable::check_like(const CsvTable& train) const {
  if (header_ == train.header_) {
    return {};
  }
  const auto [a, b] = std::ranges::mismatch(header_, train.header_);
  const auto name = [](const auto& header, const auto& at) { return at == header.end() ? "nothing" : *at; };
  return fail(ErrorCode::kData,
              fmt::format("{}: expected the columns of {}, but column {} is '{}' instead of '{}'", place, train.place,
                          a - header_.begin() + 1, printable(name(header_, a)), printable(name(train.header_, b))));
}

Result<std::shared_ptr<CsvTable>> CsvTable::scan(const std::filesystem::path& file, const Source& source) {
  POPRUN_ASSIGN(CsvReader reader, CsvReader::open(file, source.scope));
  const std::shared_ptr<CsvTable> table(new CsvTable(file, source.scope));
  table->place = file.string();
  table->header_ = reader.header();
  POPRUN_TRY(table->choose_label(reader, source));
  POPRUN_ASSIGN(const std::string type, label_type(source));
  LabelScan labels(type);
  std::vector<std::string_view> fields;
  while (true) {
    POPRUN_ASSIGN(const bool any, reader.next(fields));
    if (!any) {
      break;
    }
    POPRUN_TRY(table->check_features(reader, fields));
    POPRUN_TRY(labels.add(fields[table->label_], [&] { return reader.place(table->label_); }));
    ++table->row_count;
  }
  if (table->row_count == 0) {
    return fail(ErrorCode::kData, fmt::format("{}: the header is not followed by any row", file.string()));
  }
  table->columns = {{.name = "x", .row_shape = {reader.header().size() - 1}}, {.name = "labels"}};
  std::move(labels).finish(table->columns[kLabel]);
  return table;
}

Status CsvTable::read(const ColumnRows& rows, std::span<std::byte> out) const {
  POPRUN_ASSIGN(CsvReader reader, CsvReader::open(file_, scope_));
  const TableColumn& column = columns[rows.column];
  const std::size_t row_bytes = rows.row_elements * column.width;
  std::vector<std::string_view> fields;
  for (std::uint64_t row = 0; row < rows.first + rows.count; ++row) {
    POPRUN_ASSIGN(const bool any, reader.next(fields));
    if (!any || label_ >= fields.size()) {
      return changed_while_read(place);
    }
    if (row < rows.first) {
      continue;
    }
    std::byte* to = out.data() + (row - rows.first) * row_bytes;
    if (rows.column == kLabel) {
      if (!write_label(fields[label_], column.kind, rows.classes, to)) {
        return changed_while_read(place);
      }
      continue;
    }
    if (fields.size() != rows.row_elements + 1) {
      return changed_while_read(place);
    }
    fields.erase(fields.begin() + static_cast<std::ptrdiff_t>(label_));
    for (const std::string_view field : fields) {
      const std::optional<float> value = number_in(field);
      if (!value) {
        return changed_while_read(place);
      }
      std::memcpy(to, &*value, sizeof(*value));
      to += sizeof(*value);
    }
  }
  return {};
}

Result<Tables> csv_tables(const Source& source) {
  const SplitNames files = split_names(std::string_view(source.text).substr(kCsvPrefix.size()));
  POPRUN_ASSIGN(const auto train, CsvTable::scan(files.train, source));
  std::shared_ptr<CsvTable> test;
  if (files.test) {
    POPRUN_ASSIGN(test, CsvTable::scan(*files.test, source));
    POPRUN_TRY(test->check_like(*train));
  }
  return Tables{.train = train, .test = test};
}

}  // namespace

const DatasetFamily& csv() {
  static constexpr DatasetFamily kFamily = {
      .form = "csv:FILE",
      .parameters = kCsvParameters,
      .stored = kStoredCsvParameters,
      .accepts = [](std::string_view text) { return text.starts_with(kCsvPrefix); },
      .describe = [](const Source& source) { return describe_tables(csv_tables(source), source); },
      .read = [](const Source& source) { return read_tables(csv_tables(source), source); },
  };
  return kFamily;
}

}  // namespace poprun::hostio::families
