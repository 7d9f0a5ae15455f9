#pragma once

#include <string_view>

#include "replica/base/error.h"

namespace poprun {

/// Checks whether a caller's job token is the expected one. Takes time proportional to the longer token, wherever they
/// differ, so that response times reveal nothing about the token.
bool equal_tokens(std::string_view given, std::string_view token);

/// Checks that a token can serve as a secret. An empty token is valid and means no token. `origin` is the file or
/// variable that holds it.
///
/// Errors
///   kUsage  the token has characters that an RPC cannot carry, or is the placeholder printed in
///           deploy/kubernetes; the message says how to make a token.
Status check_token(std::string_view token, std::string_view origin);

}  // namespace poprun
