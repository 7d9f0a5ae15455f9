#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"

/// Splits and quotes words as a shell does.
namespace poprun::launcher {

/// Splits at blanks. '...' and "..." group, and a backslash takes the next character literally (inside "..." too).
/// There is no expansion of any kind. (boost::program_options::split_unix ends "it's" at the apostrophe, unescapes
/// inside '...', drops '' and closes open quotes by itself.) Errors: kUsage if a quote is not closed, or the text ends
/// in a backslash.
Result<std::vector<std::string>> split_shell_words(std::string_view text);

/// Quotes `word` so that a shell reads it as one word; leaves it unquoted if that is safe.
std::string quote_shell_word(std::string_view word);

}  // namespace poprun::launcher
