#include "hostio/formats/jsonl.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

#include "hostio/formats/printable.h"
#include "replica/base/text.h"

namespace poprun::hostio {
namespace {

constexpr std::size_t kDimsMax = 8;
constexpr std::size_t kFieldsMax = 1024;

static_assert(kTextPadding >= simdjson::SIMDJSON_PADDING);

/// Appends the numbers of a value at this depth of arrays. Returns false if it is neither a number nor a rectangular
/// array of them.
bool append_numbers(const simdjson::dom::element& value, std::size_t depth, JsonField& field) {
  using simdjson::dom::element_type;
  switch (value.type()) {
    case element_type::INT64:
    case element_type::UINT64:
      field.numbers.push_back(value.get_double().value_unsafe());
      return depth == field.shape.size();
    case element_type::DOUBLE:
      field.is_integers = false;
      field.numbers.push_back(value.get_double().value_unsafe());
      return depth == field.shape.size();
    case element_type::BOOL:
      field.numbers.push_back(value.get_bool().value_unsafe() ? 1 : 0);
      return depth == field.shape.size();
    case element_type::ARRAY:
      break;
    case element_type::OBJECT:
    case element_type::STRING:
    case element_type::NULL_VALUE:
      return false;
  }
  if (depth == kDimsMax) {
    return false;
  }
  const simdjson::dom::array array = value.get_array().value_unsafe();
  // The first array of each depth determines the length of all.
  const std::uint64_t length = array.size();
  const bool is_first = depth == field.shape.size() && field.numbers.empty();
  if (is_first) {
    field.shape.push_back(length);
  }
  if (depth >= field.shape.size() || field.shape[depth] != length) {
    return false;
  }
  return std::ranges::all_of(
      array, [&](const simdjson::dom::element& entry) { return append_numbers(entry, depth + 1, field); });
}

void set_field(std::string_view name, const simdjson::dom::element& value, JsonField& field) {
  field.name = name;
  field.text = {};
  field.numbers.clear();
  field.shape.clear();
  field.is_integers = true;
  if (value.is_null()) {
    field.kind = JsonField::Kind::kNull;
  } else if (value.is_string()) {
    field.kind = JsonField::Kind::kText;
    field.text = value.get_string().value_unsafe();
  } else {
    field.kind = append_numbers(value, 0, field) ? JsonField::Kind::kNumbers : JsonField::Kind::kOther;
  }
}

}  // namespace

struct JsonParser::Simd {
  simdjson::dom::parser parser{kRecordBytesMax * 2};
};

JsonParser::JsonParser() : simd_(std::make_unique<Simd>()) {}
JsonParser::JsonParser(JsonParser&&) noexcept = default;
JsonParser::~JsonParser() = default;

Status JsonParser::parse(std::string_view text) {
  simdjson::dom::object object;
  const simdjson::error_code fault =
      simd_->parser.parse(text.data(), text.size(), /*realloc_if_needed=*/false).get(object);
  if (fault == simdjson::INCORRECT_TYPE) {
    return fail(ErrorCode::kData, "expected a JSON object, such as {\"input_ids\": [1, 2], \"labels\": [2, 3]}");
  }
  if (fault != simdjson::SUCCESS) {
    return fail(ErrorCode::kData, fmt::format("expected a JSON object: {}", simdjson::error_message(fault)));
  }
  const std::size_t count = object.size();
  if (count > kFieldsMax) {
    return fail(ErrorCode::kData, fmt::format("a JSON object with more than {} keys", grouped(kFieldsMax)));
  }
  fields_.resize(count);
  std::size_t at = 0;
  for (const auto& [name, value] : object) {
    set_field(name, value, fields_[at++]);
  }
  return {};
}

const JsonField* JsonParser::find(std::string_view name) const {
  const auto found = std::ranges::find(fields_, name, &JsonField::name);
  return found == fields_.end() ? nullptr : &*found;
}

Result<JsonLines> JsonLines::open(const std::filesystem::path& file, const FileScope& scope) {
  POPRUN_ASSIGN(LineReader lines, LineReader::open(file, scope));
  return JsonLines(std::move(lines), file.string());
}

Result<bool> JsonLines::next() {
  std::string_view line;
  POPRUN_ASSIGN(const bool any, lines_.next(line));
  if (any) {
    POPRUN_TRY(parser_.parse(line).map_error([&](const Error& error) {
      return Error{error.code, fmt::format("{}: {}", place(), error.message)};
    }));
  }
  return any;
}

std::string JsonLines::place() const {
  return fmt::format("{}: line {}", name_, lines_.number());
}

}  // namespace poprun::hostio
