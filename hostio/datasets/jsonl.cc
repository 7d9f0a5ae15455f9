#include "hostio/formats/jsonl.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hostio/datasets/dataset.h"
#include "hostio/datasets/tables.h"
#include "hostio/formats/printable.h"
#include "replica/base/text.h"

/// "jsonl:FILE" or "jsonl:TRAIN,test=TEST": one JSON object per line. The keys of the first line are the columns
/// (tables.h). Memory use depends on the numbers, not on the text: 4 bytes each.
namespace poprun::hostio::families {
namespace {

constexpr std::string_view kJsonlPrefix = "jsonl:";

/// Collects the type and shape that the values of one key share, while the file is read for the first time.
struct KeyScan {
  TableColumn column;
  std::optional<LabelScan> labels;  ///< If the labels are single values.
  bool is_integers = true;
  double least = 0;
  double most = 0;
};

class JsonTable final : public Table {
 public:
  /// Reads the whole file once, to count its rows and check its values.
  static Result<TablePtr> scan(const std::filesystem::path& file, const Source& source);

  [[nodiscard]] Status read(const ColumnRows& wanted, std::span<std::byte> out) const override;

 private:
  JsonTable(std::filesystem::path file, FileScope scope) : file_(std::move(file)), scope_(std::move(scope)) {}

  void begin_columns(const JsonLines& lines, const std::string& type, std::vector<KeyScan>& keys);

  std::filesystem::path file_;
  FileScope scope_;
};

/// Returns a label as the text that a CSV file would have.
std::string label_text(const JsonField& field) {
  if (field.kind == JsonField::Kind::kText) {
    return std::string{field.text};
  }
  const double value = field.numbers[0];
  return field.is_integers ? fmt::format("{:.0f}", value) : fmt::format("{:#}", value);
}

/// Chooses the columns: those keys of the first line whose values are of use.
void JsonTable::begin_columns(const JsonLines& lines, const std::string& type, std::vector<KeyScan>& keys) {
  std::vector<std::string> others;
  for (const JsonField& field : lines.object().fields()) {
    const bool is_text = field.kind == JsonField::Kind::kText;
    const bool is_label = is_label_name(field.name);
    const bool is_plain = printable(field.name, field.name.size()) == field.name;  // Names occur in messages.
    if (!is_plain || (field.kind != JsonField::Kind::kNumbers && !(is_text && (is_label || field.name == "text")))) {
      others.push_back(printable(field.name));
      continue;
    }
    KeyScan& key = keys.emplace_back();
    key.column.name = field.name;
    key.column.kind = is_text && !is_label ? ColumnKind::kText : ColumnKind::kNumbers;
    key.column.row_shape = field.shape;
    if (is_label && field.shape.empty()) {
      key.labels.emplace(type);
    }
  }
  if (!others.empty()) {
    notes.push_back(fmt::format("{}: {} {} not read: only numbers, arrays of numbers, labels and \"text\" are read",
                                place, fmt::join(others, ", "), others.size() == 1 ? "is" : "are"));
  }
}

/// Adds a value of an array or number to what is known of its column. Returns what is wrong with it, or nothing.
std::optional<std::string> add_numbers(const JsonField& field, KeyScan& key) {
  TableColumn& column = key.column;
  if (field.kind != JsonField::Kind::kNumbers) {
    return "expected numbers, or nested arrays of equal lengths";
  }
  const bool is_alike =
      field.shape.size() == column.row_shape.size() &&
      (field.shape.empty() || std::equal(field.shape.begin() + 1, field.shape.end(), column.row_shape.begin() + 1));
  if (!is_alike) {
    return fmt::format("expected an array like the first, [{}], found [{}]", fmt::join(column.row_shape, ", "),
                       fmt::join(field.shape, ", "));
  }
  if (!field.shape.empty() && field.shape[0] != column.row_shape[0]) {
    column.is_ragged = true;
    column.row_shape[0] = std::max(column.row_shape[0], field.shape[0]);
  }
  key.is_integers = key.is_integers && field.is_integers;
  for (const double value : field.numbers) {
    key.least = std::min(key.least, value);
    key.most = std::max(key.most, value);
  }
  constexpr double kFloatMax = std::numeric_limits<float>::max();
  return key.least < -kFloatMax || key.most > kFloatMax ? std::optional<std::string>("a number does not fit in float32")
                                                        : std::nullopt;
}

/// Adds the value of one key of a line. Errors: kData.
Status add_value(const JsonLines& lines, KeyScan& key) {
  TableColumn& column = key.column;
  const JsonField* field = lines.object().find(column.name);
  const auto complain = [&](std::string_view why) {
    return fail(ErrorCode::kData, fmt::format("{}, key '{}': {}", lines.place(), printable(column.name), why));
  };
  if (field == nullptr || field->kind == JsonField::Kind::kNull) {
    return complain("the value is missing; add it or remove the line");
  }
  if (column.kind == ColumnKind::kText) {
    column.text_bytes += field->text.size() + 1;
    return field->kind == JsonField::Kind::kText ? Status() : complain("expected a text in quotes");
  }
  if (key.labels) {
    if (field->kind != JsonField::Kind::kText && !(field->kind == JsonField::Kind::kNumbers && field->shape.empty())) {
      return complain("expected a number or a name, as in the first line");
    }
    return key.labels->add(label_text(*field),
                           [&] { return fmt::format("{}, key '{}'", lines.place(), printable(column.name)); });
  }
  const std::optional<std::string> fault = add_numbers(*field, key);
  return fault ? complain(*fault) : Status();
}

/// Sets the type of the column once all values are known.
TableColumn finished(KeyScan key) {
  TableColumn column = std::move(key.column);
  if (key.labels) {
    std::move(*key.labels).finish(column);
    column.row_shape.clear();
  } else if (column.kind != ColumnKind::kText && key.is_integers && !is_feature_name(column.name)) {
    using Limits = std::numeric_limits<std::int32_t>;
    column.kind = ColumnKind::kIntegers;
    column.width = key.least < Limits::min() || key.most > Limits::max() ? 8 : 4;
  }
  return column;
}

Result<TablePtr> JsonTable::scan(const std::filesystem::path& file, const Source& source) {
  POPRUN_ASSIGN(JsonLines lines, JsonLines::open(file, source.scope));
  POPRUN_ASSIGN(const std::string type, label_type(source));
  const std::shared_ptr<JsonTable> table(new JsonTable(file, source.scope));
  table->place = file.string();
  std::vector<KeyScan> keys;
  while (true) {
    POPRUN_ASSIGN(const bool any, lines.next());
    if (!any) {
      break;
    }
    if (table->row_count == 0) {
      table->begin_columns(lines, type, keys);
    }
    for (KeyScan& key : keys) {
      POPRUN_TRY(add_value(lines, key));
    }
    ++table->row_count;
  }
  if (keys.empty()) {
    return fail(ErrorCode::kData, fmt::format("{}: expected one JSON object per line, with input_ids and labels, text, "
                                              "or x and y, found {}",
                                              file.string(), table->row_count == 0 ? "no lines" : "other keys"));
  }
  for (KeyScan& key : keys) {
    table->columns.push_back(finished(std::move(key)));
  }
  return table;
}

template <typename T>
void write_numbers(const std::vector<double>& numbers, std::byte* to) {
  for (const double number : numbers) {
    const auto value = static_cast<T>(number);
    std::memcpy(to, &value, sizeof(value));
    to += sizeof(value);
  }
}

/// Writes the value of one row, whose memory contains padding. Returns false if it is not as the scan found it.
bool write_value(const JsonField& field, const TableColumn& column, const ColumnRows& wanted, std::byte* to) {
  if (is_label_name(column.name) && column.row_shape.empty()) {
    const bool is_single =
        field.kind == JsonField::Kind::kText || (field.kind == JsonField::Kind::kNumbers && field.shape.empty());
    return is_single && write_label(label_text(field), column.kind, wanted.classes, to);
  }
  if (field.kind != JsonField::Kind::kNumbers || field.numbers.size() > wanted.row_elements) {
    return false;
  }
  const bool is_floats = column.kind == ColumnKind::kNumbers;
  constexpr double kTwo63 = 0x1p63;
  if (!is_floats && !std::ranges::all_of(field.numbers, [&](double v) {
        return column.width == 4 ? v >= -0x1p31 && v < 0x1p31 : v >= -kTwo63 && v < kTwo63;
      })) {
    return false;
  }
  is_floats           ? write_numbers<float>(field.numbers, to)
  : column.width == 4 ? write_numbers<std::int32_t>(field.numbers, to)
                      : write_numbers<std::int64_t>(field.numbers, to);
  return true;
}

Status JsonTable::read(const ColumnRows& wanted, std::span<std::byte> out) const {
  POPRUN_ASSIGN(JsonLines lines, JsonLines::open(file_, scope_));
  const TableColumn& column = columns[wanted.column];
  const bool is_text = column.kind == ColumnKind::kText;
  const std::size_t row_bytes = wanted.row_elements * column.width;
  if (!is_text) {
    std::ranges::fill(out, wanted.padding);
  }
  std::size_t at = 0;
  for (std::uint64_t row = 0; row < wanted.first + wanted.count; ++row) {
    POPRUN_ASSIGN(const bool any, lines.next());
    const JsonField* field = any ? lines.object().find(column.name) : nullptr;
    if (field == nullptr || (is_text && field->text.size() + 1 > out.size() - at)) {
      return changed_while_read(place);
    }
    if (row < wanted.first) {
      continue;
    }
    if (is_text) {
      std::ranges::copy(std::as_bytes(std::span(field->text)), out.data() + at);
      out[at + field->text.size()] = std::byte{'\n'};
      at += field->text.size() + 1;
    } else if (!write_value(*field, column, wanted, out.data() + (row - wanted.first) * row_bytes)) {
      return changed_while_read(place);
    }
  }
  return {};
}

Result<Tables> jsonl_tables(const Source& source) {
  const SplitNames files = split_names(std::string_view(source.text).substr(kJsonlPrefix.size()));
  Tables tables;
  POPRUN_ASSIGN(tables.train, JsonTable::scan(files.train, source));
  if (files.test) {
    POPRUN_ASSIGN(tables.test, JsonTable::scan(*files.test, source));
  }
  return tables;
}

}  // namespace

const DatasetFamily& jsonl() {
  static constexpr DatasetFamily kFamily = {
      .form = "jsonl:FILE",
      .parameters = kTableParameters,
      .stored = kStoredTableParameters,
      .accepts = [](std::string_view text) { return text.starts_with(kJsonlPrefix); },
      .describe = [](const Source& source) { return describe_tables(jsonl_tables(source), source); },
      .read = [](const Source& source) { return read_tables(jsonl_tables(source), source); },
  };
  return kFamily;
}

}  // namespace poprun::hostio::families
