#pragma once

#include <string_view>

namespace poprun {

/// Whether a caller's job token is ours. Cost: that of the longer one, wherever they differ, so
/// that the delay of an answer tells nothing of the token.
bool equal_tokens(std::string_view given, std::string_view token);

}  // namespace poprun
