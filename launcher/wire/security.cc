#include "launcher/wire/security.h"

#include <array>
#include <cstdlib>

#include <fmt/format.h>
#include <sys/random.h>

#include "replica/base/grpc/channel.h"
#include "replica/base/grpc/identity.h"

namespace poprun::launcher {
namespace {

std::string users_token() {
  const char* token = std::getenv("POPRUN_EMU_TOKEN");
  return token == nullptr ? "" : token;
}

/// Returns the POPRUN_EMU_TOKEN of our own environment or, if it is not set, 128 random bits.
std::string job_token() {
  if (std::string users = users_token(); !users.empty()) {
    return users;
  }
  std::array<unsigned char, 16> bytes{};
  POPRUN_CHECK(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  std::string token;
  for (const unsigned char byte : bytes) {
    token += fmt::format("{:02x}", static_cast<unsigned>(byte));
  }
  return token;
}

}  // namespace

bool token_is_users() {
  return !users_token().empty();
}

std::optional<TlsIdentity> Security::identity(bool leaves_loopback) const {
  if (own || !leaves_loopback) {
    return own;
  }
  return identity_of_token(token);
}

std::string Security::variable(bool leaves_loopback) const {
  return own ? to_line(*own) : leaves_loopback ? "token" : "off";
}

Result<Security> job_security(const TlsFiles& files, bool leaves_loopback) {
  constexpr const char* kVariable = "POPRUN_EMU_TOKEN";
  Security security{.token = job_token(), .own = std::nullopt};
  POPRUN_TRY(check_token(security.token, kVariable));
  if (files.any()) {
    POPRUN_ASSIGN(security.own, read_identity(files));
  } else if (leaves_loopback) {
    POPRUN_TRY(check_hard_to_guess(security.token, kVariable));
  }
  return security;
}

bool leaves_loopback(const std::string& address) {
  return !is_loopback(address.substr(0, address.rfind(':'))).value_or(false);
}

}  // namespace poprun::launcher
