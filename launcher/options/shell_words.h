#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"

/// Functions that split and quote words as a shell does.
namespace poprun::launcher {

/// Splits `text` at blanks. '...' and "..." group characters. A character after a backslash is taken literally, even
/// inside "...". Nothing is expanded. (Boost's split_unix is not used because it ends "it's" at the apostrophe,
/// unescapes inside '...', drops '' and accepts quotes that are not closed.) Errors: kUsage if a quote is not closed or
/// the text ends in a backslash.
Result<std::vector<std::string>> split_shell_words(std::string_view text);

/// Quotes `word`, if necessary, so that a shell reads it as one word.
std::string quote_shell_word(std::string_view word);

}  // namespace poprun::launcher
