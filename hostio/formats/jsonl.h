#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hostio/formats/lines.h"
#include "replica/base/error.h"

namespace poprun::hostio {

/// A value of a JSON object, in the form that datasets need.
struct JsonField {
  enum class Kind : std::uint8_t { kNull, kText, kNumbers, kOther };

  std::string_view name;
  Kind kind = Kind::kOther;  ///< kOther: an object, or an array that is not rectangular or contains other things.
  std::string_view text;     ///< The value of a kText.
  /// For kNumbers: the numbers of nested arrays in row-major order, and the lengths of the arrays; [] for a number.
  /// Booleans count as 0 and 1.
  std::vector<double> numbers;
  std::vector<std::uint64_t> shape;
  bool is_integers = true;  ///< For kNumbers: no number has a fraction or an exponent.
};

/// Parses JSON objects (RFC 8259) with simdjson.
class JsonParser {
 public:
  JsonParser();
  JsonParser(JsonParser&&) noexcept;
  ~JsonParser();

  /// Parses an object. `text` is followed by kTextPadding readable bytes. The fields are valid until the next call.
  /// Errors: kData with the reason, which does not name the file.
  Status parse(std::string_view text);
  [[nodiscard]] const std::vector<JsonField>& fields() const { return fields_; }
  /// Returns the field called `name`, or null if the object does not have one.
  [[nodiscard]] const JsonField* find(std::string_view name) const;

 private:
  struct Simd;
  std::unique_ptr<Simd> simd_;
  std::vector<JsonField> fields_;
};

/// Reads a file with one JSON object per line (JSON Lines, jsonlines.org), in memory that does not grow with the file.
class JsonLines {
 public:
  /// Errors: those of TextWindow::open.
  static Result<JsonLines> open(const std::filesystem::path& file, const FileScope& scope);

  /// Reads the next object. Returns false at the end of the file. Errors: kData, with the line.
  Result<bool> next();
  [[nodiscard]] const JsonParser& object() const { return parser_; }
  /// Returns "FILE: line 7", for messages.
  [[nodiscard]] std::string place() const;

 private:
  JsonLines(LineReader lines, std::string name) : lines_(std::move(lines)), name_(std::move(name)) {}

  LineReader lines_;
  std::string name_;
  JsonParser parser_;
};

}  // namespace poprun::hostio
