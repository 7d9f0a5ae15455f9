#include "launcher/options/shell_words.h"

#include <algorithm>
#include <cctype>

namespace poprun::launcher {

Result<std::vector<std::string>> split_shell_words(std::string_view text) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      in_word = false;
      continue;
    }
    if (!in_word) {
      words.emplace_back();
      in_word = true;
    }
    if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (quote != 0 && c == quote) {
      quote = 0;
    } else if (c == '\\' && quote != '\'') {
      if (++i == text.size()) {
        return fail(ErrorCode::kUsage, "the text ends in a backslash");
      }
      words.back() += text[i];
    } else {
      words.back() += c;
    }
  }
  if (quote != 0) {
    return fail(ErrorCode::kUsage, std::string("the quote ") + quote + " is not closed");
  }
  return words;
}

std::string quote_shell_word(std::string_view word) {
  const auto safe = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_@%+=:,./-").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, safe)) {
    return std::string(word);
  }
  std::string quoted = "'";
  for (const char c : word) {
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return quoted + "'";
}

}  // namespace poprun::launcher
