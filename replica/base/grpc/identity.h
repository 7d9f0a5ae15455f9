#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "replica/base/error.h"

/// Who the processes of a job are to each other beyond loopback: both ends of every connection present a certificate,
/// and each trusts only those that `authorities` signed.
namespace poprun {

/// All PEM, without comments.
struct TlsIdentity {
  std::string certificate;  ///< And those between it and the authorities, if there are any.
  std::string key;
  std::string authorities;
  std::string peer_name;  ///< For which the certificate of a server must be made out.

  friend bool operator==(const TlsIdentity&, const TlsIdentity&) = default;
};

/// Files of a user who has certificates of his own.
struct TlsFiles {
  std::string certificate;  ///< --tls-cert: PEM, the certificate first.
  std::string key;          ///< --tls-key: PEM, without a password.
  std::string authorities;  ///< --tls-ca: PEM.

  [[nodiscard]] bool any() const { return !certificate.empty() || !key.empty() || !authorities.empty(); }
};

/// The identity that every process with the same token makes for itself: the key follows from the token (PBKDF2, 10,000
/// rounds of SHA-256), and the certificate is signed with it. So the token is the job's one secret. Whoever sees a
/// certificate can try tokens, hence `check_hard_to_guess`.
///
/// Cost: 5 ms.
TlsIdentity identity_of_token(std::string_view token);

/// Whether a token may be the one secret of services that other hosts reach. `origin` as in check_token.
///
/// Errors
///   kUsage  it is shorter than 16 characters; says how to make a better one.
Status check_hard_to_guess(std::string_view token, std::string_view origin);

/// The identity in these files. Servers must have the name that the certificate itself is made out for: all have the
/// same certificate, or certificates for the same name.
///
/// Errors
///   kUsage  one of the three is not given or cannot be read; key and certificate are not of one
///           pair, or the authorities do not vouch for the certificate as one of a server and a
///           client; the authorities are larger than 100 KiB or the certificate with those between
///           is larger than 16 KiB, so that to_line would not fit into an environment variable;
///           names the option and the file.
///   kData   a file is no PEM, or its key needs a password.
Result<TlsIdentity> read_identity(const TlsFiles& files);

/// Why the file of a key should be better kept; nothing where only its owner reads it.
std::optional<std::string> warning_about_key(const std::string& path);

/// An identity as one printable line, as it travels in an environment variable.
std::string to_line(const TlsIdentity& identity);

/// Errors
///   kUsage  `line` was not made by to_line.
Result<TlsIdentity> identity_from_line(std::string_view line);

}  // namespace poprun
