#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace poprun::hostio {

/// Returns text from a file for a message of one line: without control characters, which become \xNN, as do bytes that
/// are not UTF-8. The middle of a text of more than `most` bytes is replaced by "..".
std::string printable(std::string_view text, std::size_t most = 60);

}  // namespace poprun::hostio
