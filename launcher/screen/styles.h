#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// Colours of a terminal.
namespace poprun::launcher {

enum class Style : std::uint8_t { kHeading, kGood, kBad };

/// Puts the control sequences of a style around `text`: bold, bold green or bold red.
std::string styled(Style style, std::string_view text);

/// Emphasises the headings and the verdict of an answer: headings (lines that begin with `# `, and unindented lines
/// that end with a colon) and the verdict (`fits` or `does not fit` at the beginning of a line).
std::string emphasised(std::string_view text);

}  // namespace poprun::launcher
