#include "hostio/formats/csv.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "hostio/formats/printable.h"
#include "replica/base/text.h"

namespace poprun::hostio {
namespace {

constexpr std::string_view kSeparators = ",;\t";

/// Returns the number of line breaks in the text.
std::uint64_t breaks_in(std::string_view text) {
  return static_cast<std::uint64_t>(std::ranges::count(text, '\n'));
}

/// Returns the most frequent separator outside quotes in a header, or a comma if it contains no separator.
char separator_of(std::string_view header) {
  std::array<std::size_t, kSeparators.size()> counts{};
  bool quoted = false;
  for (const char c : header) {
    quoted ^= c == '"';
    if (const std::size_t which = kSeparators.find(c); !quoted && which != std::string_view::npos) {
      ++counts.at(which);
    }
  }
  return kSeparators[static_cast<std::size_t>(std::ranges::max_element(counts) - counts.begin())];
}

}  // namespace

Result<CsvReader> CsvReader::open(const std::filesystem::path& file, const FileScope& scope) {
  POPRUN_ASSIGN(TextWindow window, TextWindow::open(file, scope));
  CsvReader reader(std::move(window), file.string());
  std::vector<std::string_view> fields;
  POPRUN_ASSIGN(const bool any, reader.record(fields));
  for (const std::string_view field : fields) {
    reader.header_.emplace_back(trimmed(field));
  }
  if (!any || fields.size() < 2) {
    return fail(ErrorCode::kData, fmt::format("{}: expected a header with the names of at least two columns, separated "
                                              "by commas, semicolons or tabs, found {}",
                                              file.string(), any ? "one column" : "no text"));
  }
  return reader;
}

std::string CsvReader::place(std::size_t column) const {
  return fmt::format("{}: line {}, column '{}'", name_, line_, printable(header_[column]));
}

/// Returns the length of the record at the beginning of the window, without its line break. Quotes count in pairs, so
/// a doubled quote inside a quoted field needs no special case.
Result<std::size_t> CsvReader::record_end() {
  std::size_t at = 0;
  bool quoted = false;
  while (true) {
    const std::string_view text = window_.text();
    for (; at < text.size(); ++at) {
      if (text[at] == '"') {
        quoted = !quoted;
      } else if (text[at] == '\n' && !quoted) {
        return at;
      }
    }
    POPRUN_ASSIGN(const bool grown, window_.more());
    if (!grown && quoted) {
      return fail(ErrorCode::kData, fmt::format("{}: line {}: a quote is never closed", name_, next_line_));
    }
    if (!grown) {
      return window_.text().size();
    }
  }
}

/// Returns a quoted field without its quotes. Doubled quotes become single ones, in the scratch memory.
std::string_view CsvReader::unquoted(std::string_view field) {
  field = field.substr(1, field.size() - 2);
  if (field.find('"') == std::string_view::npos) {
    return field;
  }
  const std::size_t begin = scratch_.size();
  for (std::size_t i = 0; i < field.size(); ++i) {
    scratch_.push_back(field[i]);
    i += field[i] == '"' ? 1U : 0U;
  }
  return {scratch_.data() + begin, scratch_.size() - begin};
}

Result<bool> CsvReader::record(std::vector<std::string_view>& fields) {
  fields.clear();
  std::size_t length = 0;
  while (true) {
    window_.drop(std::exchange(used_, 0));
    POPRUN_ASSIGN(length, record_end());
    if (window_.text().empty()) {
      return false;
    }
    const std::string_view record = window_.text().substr(0, length);
    used_ = std::min(length + 1, window_.text().size());
    line_ = next_line_;
    next_line_ += breaks_in(window_.text().substr(0, used_));
    if (record.find_first_not_of(" \r") != std::string_view::npos) {
      break;
    }
  }
  std::string_view rest = window_.text().substr(0, length);
  if (rest.ends_with('\r')) {
    rest.remove_suffix(1);
  }
  separator_ = separator_ == '\0' ? separator_of(rest) : separator_;
  scratch_.clear();
  scratch_.reserve(rest.size());  // Fields refer to it, so it must not move.
  while (true) {
    std::size_t end = 0;
    if (rest.starts_with('"')) {
      // The closing quote is the first one that does not belong to a pair.
      end = 1;
      while (end < rest.size() && (rest[end] != '"' || (end + 1 < rest.size() && rest[end + 1] == '"'))) {
        end += rest[end] == '"' ? 2U : 1U;
      }
      ++end;
      if (end > rest.size() || (end < rest.size() && rest[end] != separator_)) {
        return fail(ErrorCode::kData, fmt::format("{}: line {}: field {}: text follows a closing quote", name_, line_,
                                                  fields.size() + 1));
      }
      fields.push_back(unquoted(rest.substr(0, end)));
    } else {
      end = std::min(rest.find(separator_), rest.size());
      fields.push_back(rest.substr(0, end));
    }
    if (end == rest.size()) {
      return true;
    }
    rest.remove_prefix(end + 1);
  }
}

Result<bool> CsvReader::next(std::vector<std::string_view>& fields) {
  POPRUN_ASSIGN(const bool any, record(fields));
  if (any && fields.size() != header_.size()) {
    return fail(ErrorCode::kData, fmt::format("{}: line {}: expected {} fields, as in the header, found {}", name_,
                                              line_, header_.size(), fields.size()));
  }
  return any;
}

}  // namespace poprun::hostio
