#include "replica/base/token.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

namespace poprun {
namespace {

/// Published in deploy/kubernetes/base/kustomization.yaml, so not a secret.
constexpr std::string_view kPlaceholder = "replace-this-token-in-your-overlay";

}  // namespace

bool equal_tokens(std::string_view given, std::string_view token) {
  const std::size_t longer = std::max(given.size(), token.size());
  unsigned difference = given.size() == token.size() ? 0U : 1U;
  for (std::size_t i = 0; i < longer; ++i) {
    const char a = i < given.size() ? given[i] : '\0';
    const char b = i < token.size() ? token[i] : '\0';
    difference |= static_cast<unsigned char>(a ^ b);
  }
  return difference == 0;
}

Status check_token(std::string_view token, std::string_view origin) {
  if (std::ranges::any_of(token, [](char c) { return c <= ' ' || c > '~'; })) {
    return fail(ErrorCode::kUsage, fmt::format("{}: a token needs printable ASCII without blanks", origin));
  }
  if (token == kPlaceholder) {
    return fail(ErrorCode::kUsage, fmt::format("{} is the placeholder of deploy/kubernetes, which anybody can read; "
                                               "make a real token with `openssl rand -hex 16`",
                                               origin));
  }
  return {};
}

}  // namespace poprun
