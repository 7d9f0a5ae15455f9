#include "hostio/formats/lines.h"

#include <algorithm>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "replica/base/text.h"

namespace poprun::hostio {

Result<TextWindow> TextWindow::open(const std::filesystem::path& file, const FileScope& scope) {
  POPRUN_ASSIGN(OpenFile opened, OpenFile::open(file, scope));
  TextWindow window(std::move(opened), file.string(), scope);
  POPRUN_TRY(window.more());
  const std::string_view text = window.text();
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    return fail(ErrorCode::kData,
                fmt::format("{}: expected UTF-8, found UTF-16; save the file as UTF-8", file.string()));
  }
  if (text.starts_with("\x1F\x8B")) {
    return fail(ErrorCode::kData, fmt::format("{}: expected text, found a gzip file; unpack it first", file.string()));
  }
  window.drop(text.starts_with("\xEF\xBB\xBF") ? 3 : 0);
  return window;
}

Result<bool> TextWindow::more() {
  constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  const std::size_t had = end_ - begin_;
  const std::size_t count = std::min<std::uint64_t>(kPieceBytes, opened_.size() - offset_);
  if (count == 0) {
    return false;
  }
  if (had >= kRecordBytesMax) {
    return fail(ErrorCode::kData,
                fmt::format("{}: a record at byte {} is longer than the limit, {}; is a closing quote "
                            "or a line break missing?",
                            name_, grouped(offset_ - had), mebibytes_text(kRecordBytesMax)));
  }
  if (begin_ > 0) {
    std::memmove(bytes_.data(), bytes_.data() + begin_, had);
    begin_ = 0;
    end_ = had;
  }
  bytes_.resize(std::max(bytes_.size(), had + count + kTextPadding));
  POPRUN_TRY(read_at(opened_, offset_, std::as_writable_bytes(std::span(bytes_).subspan(had, count)), name_));
  scope_.advance(count);
  offset_ += count;
  end_ += count;
  return true;
}

Result<LineReader> LineReader::open(const std::filesystem::path& file, const FileScope& scope) {
  POPRUN_ASSIGN(TextWindow window, TextWindow::open(file, scope));
  return LineReader(std::move(window));
}

Result<bool> LineReader::next(std::string_view& line) {
  while (true) {
    std::size_t searched = 0;
    std::size_t end = window_.text().find('\n');
    bool last = false;
    while (end == std::string_view::npos && !last) {
      searched = window_.text().size();
      POPRUN_ASSIGN(const bool grown, window_.more());
      last = !grown;
      end = window_.text().find('\n', searched);
    }
    const std::string_view whole = window_.text();
    if (last && whole.empty()) {
      return false;
    }
    line = whole.substr(0, end);
    window_.drop(last ? whole.size() : end + 1);
    ++number_;
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (!trimmed(line).empty()) {
      return true;
    }
  }
}

}  // namespace poprun::hostio
