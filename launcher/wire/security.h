#pragma once

#include <optional>
#include <string>

#include "replica/base/error.h"
#include "replica/base/grpc/identity.h"

/// What every call between the processes of a job must carry.
namespace poprun::launcher {

/// POPRUN_EMU_TOKEN of our own environment, or else 128 random bits.
std::string job_token();

/// True where the user chose the token, and can start a data server with it.
bool token_is_users();

/// What the processes of a job prove to each other: the token on every call, and on connections
/// beyond loopback also an identity, the user's own or that of the token.
struct Security {
  std::string token;
  std::optional<TlsIdentity> own;

  /// That of a service which `leaves_loopback`; nothing where it is spoken to in plain text.
  [[nodiscard]] std::optional<TlsIdentity> identity(bool leaves_loopback) const;

  /// The same for replicas: the value of POPRUN_EMU_TLS.
  [[nodiscard]] std::string variable(bool leaves_loopback) const;
};

/// For the user's files, if there are any, and a token of his (job_token.h).
///
/// Errors: those of check_token and read_identity; those of check_hard_to_guess, where a service of
/// the job `leaves_loopback`.
Result<Security> job_security(const TlsFiles& files, bool leaves_loopback);

/// Whether the service at `address`, HOST:PORT, is beyond loopback; so is a name that nobody knows.
bool leaves_loopback(const std::string& address);

}  // namespace poprun::launcher
