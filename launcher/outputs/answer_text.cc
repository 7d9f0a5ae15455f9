#include "launcher/outputs/answer_text.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/descriptor.h>
#include <nlohmann/json.hpp>

#include "launcher/outputs/profile_file.h"

namespace poprun::launcher {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::vector<std::pair<std::string, std::string>>;  // Columns and cells.

/// Quotes a cell if it contains a character that separates cells or rows (RFC 4180).
std::string csv_cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) {
    return std::string(text);
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  }
  return quoted + '"';
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void add_cells(const Json& object, const std::string& prefix, Row& row) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      add_cells(value, prefix + key + '.', row);
    } else if (!value.is_array()) {
      row.emplace_back(prefix + key, text_of(value));
    } else if (std::ranges::none_of(value, [](const Json& one) { return one.is_structured(); })) {
      std::vector<std::string> texts;
      std::ranges::transform(value, std::back_inserter(texts), text_of);
      row.emplace_back(prefix + key, fmt::format("{}", fmt::join(texts, ";")));
    }
  }
}

}  // namespace

std::string json_text(const google::protobuf::Message& answer) {
  const std::unique_ptr<google::protobuf::Message> versioned(answer.New());
  versioned->CopyFrom(answer);
  const auto* const schema = versioned->GetDescriptor()->FindFieldByName("schema");
  POPRUN_CHECK(schema != nullptr);
  versioned->GetReflection()->SetUInt32(versioned.get(), schema, kAnswerSchema);
  const Result<std::string> json = message_json(*versioned, JsonKeys::kAsInProto);
  POPRUN_CHECK(json.has_value());
  return *json;
}

std::string csv_text(const google::protobuf::Message& message) {
  const Json answer = Json::parse(json_text(message));
  std::vector<Row> rows;
  for (const char* const list : {"models", "jobs", "rows", "runs"}) {
    for (const Json& element : answer.value(list, Json::array())) {
      add_cells(element, "", rows.emplace_back());
    }
  }
  if (rows.empty()) {
    add_cells(answer, "", rows.emplace_back());
  }
  std::vector<std::string> columns;
  for (const Row& row : rows) {
    for (const auto& [column, cell] : row) {
      if (std::ranges::count(columns, column) == 0) {
        columns.push_back(column);
      }
    }
  }
  std::string csv = fmt::format("{}\n", fmt::join(columns, ","));
  for (const Row& row : rows) {
    for (const std::string& column : columns) {
      const auto cell = std::ranges::find(row, column, &Row::value_type::first);
      csv += (&column == &columns.front() ? "" : ",") + (cell == row.end() ? "" : csv_cell(cell->second));
    }
    csv += '\n';
  }
  return csv;
}

}  // namespace poprun::launcher
