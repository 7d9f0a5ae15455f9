#include "launcher/wire/security.h"

#include "launcher/wire/job_token.h"
#include "replica/base/token.h"
#include "replica/tls/channel.h"

namespace poprun::launcher {

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
