#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/options/option_table.h"

/// The words that the completion scripts of all shells offer.
namespace poprun::launcher {

/// Returns the words that can be the first one, each with its meaning: the subcommands, `models` and `help`.
std::vector<std::pair<std::string, std::string>> first_words();

/// Returns the first part of each kind of data source, such as "fashion-mnist" or "idx:". The text for one kind of
/// source may list several forms, as in "npy:DIR, npy:NAME=FILE".
std::vector<std::string> beginnings_of_sources();

/// Returns the values that can be offered for a row: its choices, or those of a boolean; may be empty.
std::vector<std::string> values_of(const OptionRow& row);

/// Returns the beginning of a row's help, up to the first punctuation mark, in a few words.
std::string brief_help(const OptionRow& row);

/// Quotes `text` in single quotes, in which only a backslash and the quote itself are special. `quote` is how the shell
/// writes the quote: `\\'` in fish, and `'\\''` in zsh.
std::string single_quoted(const std::string& text, const std::string& quote);

}  // namespace poprun::launcher
