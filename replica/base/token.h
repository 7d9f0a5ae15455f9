#pragma once

#include <string_view>

#include "replica/base/error.h"

namespace poprun {

/// Whether a caller's job token is ours. Cost: that of the longer one, wherever they differ, so that the delay of an
/// answer tells nothing of the token.
bool equal_tokens(std::string_view given, std::string_view token);

/// Whether a token can be a secret. An empty one can: it means that there is none. `origin` is the file or variable
/// that has it.
///
/// Errors
///   kUsage  it has characters that no call can carry, or is the one printed in
///           deploy/kubernetes; says how to make one.
Status check_token(std::string_view token, std::string_view origin);

}  // namespace poprun
