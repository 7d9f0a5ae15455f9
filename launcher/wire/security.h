#pragma once

#include <optional>
#include <string>

#include "replica/base/error.h"
#include "replica/base/grpc/identity.h"

namespace poprun::launcher {

/// Returns whether the user chose the token, and can therefore start a data server that accepts it.
bool token_is_users();

/// Credentials of the processes of a job. Every call carries the token; connections beyond loopback also use an
/// identity, either the user's own or one derived from the token.
struct Security {
  std::string token;
  std::optional<TlsIdentity> own;

  /// Returns the identity of a service, or nothing if its connections are plain text. `leaves_loopback` says whether
  /// other hosts reach the service.
  [[nodiscard]] std::optional<TlsIdentity> identity(bool leaves_loopback) const;

  /// Returns the identity of such a service in the form that replicas need, which is the value of POPRUN_EMU_TLS.
  [[nodiscard]] std::string variable(bool leaves_loopback) const;
};

/// Builds the credentials from the user's files and token, if they are given. `leaves_loopback` says whether other
/// hosts reach a service of the job. Errors: those of check_token and read_identity and, if `leaves_loopback` is true,
/// those of check_hard_to_guess.
Result<Security> job_security(const TlsFiles& files, bool leaves_loopback);

/// Returns whether `address`, HOST:PORT, is beyond loopback. A name that cannot be resolved counts as beyond loopback.
bool leaves_loopback(const std::string& address);

}  // namespace poprun::launcher
