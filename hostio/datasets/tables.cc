#include "hostio/datasets/tables.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hostio/datasets/array_dataset.h"
#include "hostio/datasets/token_windows.h"
#include "hostio/formats/printable.h"
#include "replica/base/text.h"

namespace poprun::hostio {
namespace {

constexpr std::size_t kNamesMax = 1 << 16;
constexpr std::size_t kNameBytesMax = 200;

/// A column of both parts.
struct ColumnPair {
  std::string tensor;  ///< Name of its arrays, without the part.
  std::size_t train = 0;
  std::size_t test = 0;
  std::vector<std::uint64_t> row_shape;
  std::vector<std::string> classes;  ///< The names of a column of kNames, in ascending order.
};

/// Returns the name of the arrays of a column. Columns named like tensors take precedence over other spellings.
std::string array_name(const Table& table, const std::string& column) {
  const auto has = [&](std::string_view name) {
    return std::ranges::find(table.columns, name, &TableColumn::name) != table.columns.end();
  };
  if (column == "features" && !has("x") && !has("images")) {
    return "x";
  }
  return column == "label" && !has("y") && !has("labels") ? "labels" : column;
}

std::uint64_t product_of(std::span<const std::uint64_t> dims) {
  std::uint64_t product = 1;
  for (const std::uint64_t dim : dims) {
    product *= dim;
  }
  return product;
}

tl::unexpected<Error> unlike(const Table& test, const Table& train, const std::string& column, std::string_view how) {
  return fail(ErrorCode::kData,
              fmt::format("{}: column '{}' must be as in {}, but {}", test.place, column, train.place, how));
}

/// Finds the column of the test table that belongs to one of the training table.
Result<ColumnPair> pair_of(const Table& train, std::size_t column, const Table& test) {
  const TableColumn& a = train.columns[column];
  const auto found = std::ranges::find(test.columns, a.name, &TableColumn::name);
  if (found == test.columns.end()) {
    return unlike(test, train, a.name, "it is missing");
  }
  const TableColumn& b = *found;
  if (a.kind != b.kind) {
    constexpr std::array kWords = {"integers", "numbers with decimals", "names", "texts"};
    const auto word = [&](const TableColumn& c) { return kWords.at(static_cast<std::size_t>(c.kind)); };
    return unlike(test, train, a.name,
                  fmt::format("it has {} instead of {}; correct it, or set data.label-type if it is the label", word(b),
                              word(a)));
  }
  if (a.row_shape.size() != b.row_shape.size()) {
    return unlike(test, train, a.name, "its rows have a different shape");
  }
  ColumnPair pair{.tensor = array_name(train, a.name),
                  .train = column,
                  .test = static_cast<std::size_t>(found - test.columns.begin()),
                  .row_shape = a.row_shape,
                  .classes = {}};
  std::set<std::string, std::less<>> names = a.names;
  names.insert(b.names.begin(), b.names.end());
  pair.classes.assign(names.begin(), names.end());
  return pair;
}

/// Sets the length of the rows of a column that is ragged, or belongs to tokens that are padded.
Status set_length(ColumnPair& pair, const Table& train, const Table& test, std::uint64_t tokens, const Source& source) {
  const TableColumn& a = train.columns[pair.train];
  const TableColumn& b = test.columns[pair.test];
  const bool is_given = source.parameters.contains("sequence-length");
  const bool is_ragged = a.is_ragged || b.is_ragged || a.row_shape != b.row_shape;
  if (is_ragged && a.row_shape.size() > 1) {
    return fail(ErrorCode::kData,
                fmt::format("{}: the rows of '{}' must have the same shape, but they differ; only rows "
                            "of one dimension can be padded",
                            train.place, a.name));
  }
  if (!is_ragged && !(is_given && a.row_shape.size() == 1 && a.row_shape[0] == tokens)) {
    return {};
  }
  const std::uint64_t longest = std::max(a.row_shape[0], b.row_shape[0]);
  if (a.is_unsigned && is_label_name(pair.tensor)) {
    return fail(ErrorCode::kData, fmt::format("{}: the labels '{}' are padded with -1, so they must be signed integers",
                                              train.place, a.name));
  }
  if (!is_given) {
    return fail(ErrorCode::kData, fmt::format("{}: the rows of '{}' differ in length, and the longest has {} elements; "
                                              "set data.sequence-length = {} to pad them",
                                              train.place, a.name, grouped(longest), longest));
  }
  POPRUN_ASSIGN(const std::uint64_t length,
                integer_parameter(source.parameters, "sequence-length", longest, 1, std::uint64_t{1} << 16));
  if (longest > length) {
    return fail(
        ErrorCode::kData,
        fmt::format("{}: a row of '{}' has {} elements, but data.sequence-length = {}; raise it, or shorten the "
                    "row",
                    a.row_shape[0] == longest ? train.place : test.place, a.name, grouped(longest), length));
  }
  pair.row_shape = {length};
  return {};
}

/// Checks that the size of an array is a number that can be computed with.
Status check_elements(const ColumnPair& pair, const Table& train, std::uint64_t rows) {
  constexpr std::uint64_t kElementsMax = std::uint64_t{1} << 48;
  std::uint64_t elements = rows;
  for (const std::uint64_t dim : pair.row_shape) {
    if (__builtin_mul_overflow(elements, dim, &elements) || elements > kElementsMax) {
      return fail(ErrorCode::kData, fmt::format("{}: {} rows of [{}] are too large", train.place, grouped(rows),
                                                fmt::join(pair.row_shape, ", ")));
    }
  }
  return {};
}

/// Returns an array of rows of a table.
ArrayFile array_of(const TablePtr& table, std::string name, const ColumnPair& pair, std::size_t column,
                   std::uint64_t first, std::uint64_t count, const Source& source) {
  const TableColumn& facts = table->columns[column];
  NpyHeader header{.kind = facts.kind == ColumnKind::kNumbers ? 'f'
                           : facts.is_unsigned                ? 'u'
                                                              : 'i',
                   .width = facts.width,
                   .shape = {count}};
  header.shape.insert(header.shape.end(), pair.row_shape.begin(), pair.row_shape.end());
  header.elements = product_of(header.shape);
  const std::uint64_t row_elements = product_of(pair.row_shape);
  ColumnRows rows{.column = column,
                  .first = first,
                  .count = count,
                  .row_elements = row_elements,
                  .padding = is_label_name(pair.tensor) ? std::byte{0xFF} : std::byte{0}};
  const std::string place = fmt::format("{}: {}", table->place, facts.name);
  const auto read = [table, rows, row_bytes = row_elements * facts.width, classes = pair.classes, place,
                     scope = source.scope](std::uint64_t begin, std::uint64_t n) -> Result<std::vector<std::byte>> {
    ColumnRows wanted = rows;
    wanted.classes = classes;
    wanted.first += begin;
    wanted.count = n;
    std::vector<std::byte> bytes;
    POPRUN_TRY(scope.resize(bytes, n * row_bytes, place));
    POPRUN_TRY(table->read(wanted, bytes));
    return bytes;
  };
  ArrayFile array{.name = std::move(name), .place = place, .header = header, .data = {}};
  array.data = [read, count, row_bytes = row_elements * facts.width](std::uint64_t most) {
    const bool is_part = row_bytes > 0 && most / row_bytes < count;
    Result<std::vector<std::byte>> bytes = read(0, is_part ? most / row_bytes + 1 : count);
    if (bytes) {
      bytes->resize(std::min<std::uint64_t>(bytes->size(), most));
    }
    return bytes;
  };
  if (table->is_seekable) {
    array.items = read;
  }
  return array;
}

std::string classes_note(const ColumnPair& pair, const Source& source) {
  constexpr std::size_t kShown = 4;
  std::string list;
  for (std::size_t i = 0; i < std::min(kShown, pair.classes.size()); ++i) {
    list += fmt::format("{}{} = {}", i == 0 ? "" : ", ", i, printable(pair.classes[i], 40));
  }
  return fmt::format("{}: the labels are names, so classes are numbered in their order: {}{}", source.text, list,
                     pair.classes.size() > kShown ? ", ..." : "");
}

/// The arrays of tables, and notes on how they were made.
struct TableArrays {
  std::vector<ArrayFile> arrays;
  std::vector<std::string> notes;
};

/// Returns the column of text if the table is text: it has neither tokens nor features.
const TableColumn* text_of(const Table& table) {
  const TableColumn* text = nullptr;
  for (const TableColumn& column : table.columns) {
    if (column.kind == ColumnKind::kText) {
      text = &column;
    } else if (is_feature_name(column.name) || column.name == "input_ids" || column.name == "tokens") {
      return nullptr;
    }
  }
  return text;
}

/// Returns the number of tokens per row, or 0 if the tables contain no rows of tokens.
std::uint64_t tokens_length(const Table& table) {
  const auto tokens = std::ranges::find_if(
      table.columns, [](const TableColumn& c) { return c.name == "input_ids" || c.name == "tokens"; });
  return tokens == table.columns.end() || tokens->row_shape.size() != 1 ? 0 : tokens->row_shape[0];
}

/// Refuses keys that apply only to text, or only to arrays.
Status check_keys(bool is_text, const Source& source) {
  constexpr std::array<std::string_view, 3> kTextOnly = {"mask-token", "masks", "task"};
  constexpr std::array<std::string_view, 5> kArraysOnly = {"channels", "deviation", "label-type", "mean",
                                                           "test-fraction"};
  const auto check = [&](const auto& keys) -> Status {
    for (const std::string_view key : keys) {
      if (source.parameters.contains(key)) {
        return fail(ErrorCode::kUsage, fmt::format("data.{} applies only to {}; remove it, because {} has {}", key,
                                                   is_text ? "columns of numbers" : "text", source.text,
                                                   is_text ? "only text" : "columns of numbers"));
      }
    }
    return {};
  };
  return is_text ? check(kArraysOnly) : check(kTextOnly);
}

/// Counts the tokens of a text column in both tables. Errors: kData if the test table lacks the column.
Result<TokenFacts> facts_of_text(const Tables& tables, const TableColumn& text) {
  TokenFacts facts{.count = text.text_bytes, .vocabulary = 256, .specials = 1};
  if (tables.test != nullptr) {
    const auto column = static_cast<std::size_t>(&text - tables.train->columns.data());
    POPRUN_ASSIGN(const ColumnPair pair, pair_of(*tables.train, column, *tables.test));
    facts.test_count = tables.test->columns[pair.test].text_bytes;
    facts.count += *facts.test_count;
  }
  return facts;
}

/// Appends the column of text, with a line break after each text.
Status append_text(const Table& table, std::string_view name, const Source& source, std::vector<std::byte>& bytes) {
  const auto found = std::ranges::find(table.columns, name, &TableColumn::name);
  const std::size_t before = bytes.size();
  POPRUN_TRY(source.scope.resize(bytes, before + found->text_bytes, table.place));
  const auto column = static_cast<std::size_t>(found - table.columns.begin());
  return table.read({.column = column, .count = table.row_count}, std::span(bytes).subspan(before));
}

Result<TableArrays> arrays_of_tables(const TablePtr& train, const TablePtr& test, const Source& source) {
  if (test != nullptr && source.parameters.contains("test-fraction")) {
    return fail(ErrorCode::kUsage,
                fmt::format("data.test-fraction has no effect, because {} has a test part of its own; "
                            "remove this key",
                            source.text));
  }
  POPRUN_ASSIGN(const double fraction, test_fraction(source));
  const TablePtr& tested = test != nullptr ? test : train;
  const std::uint64_t test_rows = test != nullptr ? test->row_count : test_items_of(train->row_count, fraction);
  const std::uint64_t train_rows = test != nullptr ? train->row_count : train->row_count - test_rows;
  TableArrays result;
  result.notes = train->notes;
  if (test == nullptr && test_rows > 0 && !source.parameters.contains("test-fraction")) {
    result.notes.push_back(
        fmt::format("{}: the test part is the last {} of {} rows; set data.test-fraction to change this", source.text,
                    grouped(test_rows), grouped(train->row_count)));
  }
  const std::uint64_t tokens = tokens_length(*train);
  for (std::size_t column = 0; column < train->columns.size(); ++column) {
    if (train->columns[column].kind == ColumnKind::kText) {
      result.notes.push_back(
          fmt::format("{}: column 'text' is not read, because other columns contain numbers", source.text));
      continue;
    }
    POPRUN_ASSIGN(ColumnPair pair, pair_of(*train, column, *tested));
    POPRUN_TRY(set_length(pair, *train, *tested, tokens, source));
    POPRUN_TRY(check_elements(pair, *train, std::max(train_rows, test_rows)));
    if (!pair.classes.empty()) {
      result.notes.push_back(classes_note(pair, source));
    }
    const char* train_part = test_rows > 0 ? "_train" : "";
    result.arrays.push_back(array_of(train, pair.tensor + train_part, pair, pair.train, 0, train_rows, source));
    if (test_rows > 0) {
      result.arrays.push_back(array_of(tested, pair.tensor + "_test", pair, pair.test, test != nullptr ? 0 : train_rows,
                                       test_rows, source));
    }
  }
  return result;
}

}  // namespace

Result<proto::Dataset> describe_tables(const Result<Tables>& tables, const Source& source) {
  POPRUN_TRY(tables);
  const Table& train = *tables->train;
  const TableColumn* text = text_of(train);
  POPRUN_TRY(check_keys(text != nullptr, source));
  if (text != nullptr) {
    POPRUN_ASSIGN(const TokenFacts facts, facts_of_text(*tables, *text));
    POPRUN_ASSIGN(proto::Dataset description, describe_token_windows(facts, source, source.text));
    description.add_notes(fmt::format("{}: only the texts are read{}", source.text,
                                      facts.test_count ? "" : ", and the last 5 % of them are the test part"));
    return description;
  }
  POPRUN_ASSIGN(const TableArrays arrays, arrays_of_tables(tables->train, tables->test, source));
  POPRUN_ASSIGN(proto::Dataset description, describe_arrays(arrays.arrays, source));
  for (const std::string& note : arrays.notes) {
    description.add_notes(note);
  }
  return description;
}

Result<std::shared_ptr<const Stored>> read_tables(const Result<Tables>& tables, const Source& source) {
  POPRUN_TRY(tables);
  const Table& train = *tables->train;
  if (const TableColumn* text = text_of(train)) {
    Tokens tokens;
    POPRUN_ASSIGN(tokens.facts, facts_of_text(*tables, *text));
    POPRUN_TRY(append_text(train, text->name, source, tokens.bytes));
    if (tables->test != nullptr) {
      POPRUN_TRY(append_text(*tables->test, text->name, source, tokens.bytes));
    }
    return stored_tokens(std::move(tokens), source.text);
  }
  POPRUN_ASSIGN(const TableArrays arrays, arrays_of_tables(tables->train, tables->test, source));
  return read_arrays(arrays.arrays, source);
}

std::optional<float> number_in(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('+') && !text.starts_with("+-")) {
    text.remove_prefix(1);
  }
  float value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range && stop == end) {
    double wide = 0;  // Too large or too small for float32; the latter is zero.
    const auto [wide_stop, wide_error] = std::from_chars(text.data(), end, wide);
    const bool tiny = wide_error == std::errc{} && std::abs(wide) < 1;
    return tiny ? std::optional(static_cast<float>(wide)) : std::nullopt;
  }
  return error == std::errc{} && stop == end && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::optional<std::int64_t> integer_in(std::string_view text) {
  text = trimmed(text);
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && stop == end ? std::optional(value) : std::nullopt;
}

Result<std::string> label_type(const Source& source) {
  std::string type = source.parameter("label-type", "");
  if (!type.empty() && type != "class" && type != "number") {
    return fail(ErrorCode::kUsage, fmt::format("data.label-type = {} is not allowed; allowed: class, number", type));
  }
  return type;
}

const char* LabelScan::add(std::string_view label) {
  const std::string_view text = trimmed(label);
  if (text.empty()) {
    return "the label is missing; remove the row or add the label";
  }
  if (integer_in(text)) {
    add_number(/*is_integer=*/true);
  } else if (const auto number = number_in(text)) {
    if (type_ == "class" && (*number != std::floor(*number) || std::abs(*number) >= 0x1p24F)) {
      return "the label is not a whole number below 2^24, as data.label-type = class requires";
    }
    add_number(/*is_integer=*/type_ == "class");
  } else if (type_ == "number") {
    return "the label is not a finite number, as data.label-type = number requires";
  } else if (!names_.contains(text)) {
    if (names_.size() == kNamesMax) {
      return "more than 65,536 different names are labels; choose a column with fewer";
    }
    if (text.size() > kNameBytesMax) {
      return "the label is too long for the name of a class";
    }
    names_.emplace(text);
  }
  return seen_number_ && !names_.empty() ? "some labels are numbers and others are names; use only one kind" : nullptr;
}

void LabelScan::finish(TableColumn& column) && {
  const bool names = !names_.empty();
  const bool integers = all_integers_ && type_ != "number";
  column.kind = names ? ColumnKind::kNames : integers ? ColumnKind::kIntegers : ColumnKind::kNumbers;
  column.width = column.kind == ColumnKind::kNumbers ? 4 : 8;
  column.names = std::move(names_);
}

bool write_label(std::string_view label, ColumnKind kind, std::span<const std::string> classes, std::byte* out) {
  if (kind == ColumnKind::kNumbers) {
    const std::optional<float> number = number_in(label);
    if (number) {
      std::memcpy(out, &*number, sizeof(float));
    }
    return number.has_value();
  }
  std::int64_t value = 0;
  if (kind == ColumnKind::kNames) {
    const auto found = std::ranges::lower_bound(classes, trimmed(label));
    if (found == classes.end() || *found != trimmed(label)) {
      return false;
    }
    value = found - classes.begin();
  } else if (const auto integer = integer_in(label)) {
    value = *integer;
  } else if (const auto number = number_in(label); number && std::abs(*number) < 0x1p24F) {
    value = static_cast<std::int64_t>(*number);
  } else {
    return false;
  }
  std::memcpy(out, &value, sizeof(value));
  return true;
}

tl::unexpected<Error> changed_while_read(std::string_view place) {
  return fail(ErrorCode::kData, fmt::format("{}: changed while it was being read", place));
}

}  // namespace poprun::hostio
