#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "replica/base/error.h"

/// Mutual TLS between the processes of a job on connections beyond loopback: both ends present a certificate, and each
/// trusts only certificates signed by `authorities`. A job's token is checked here, too.
namespace poprun {

/// Certificates and key in PEM, without comments.
struct TlsIdentity {
  std::string certificate;  ///< Followed by any intermediate certificates.
  std::string key;
  std::string authorities;
  std::string peer_name;  ///< Name that a server's certificate must carry.

  friend bool operator==(const TlsIdentity&, const TlsIdentity&) = default;
};

/// Files in which a user provides the certificates.
struct TlsFiles {
  std::string certificate;  ///< --tls-cert: PEM, the leaf certificate first.
  std::string key;          ///< --tls-key: PEM, without a password.
  std::string authorities;  ///< --tls-ca: PEM.

  [[nodiscard]] bool any() const { return !certificate.empty() || !key.empty() || !authorities.empty(); }
};

/// Checks whether a caller's job token is the expected one. Takes time proportional to the longer token, wherever the
/// tokens differ, so that response times reveal nothing about the token.
bool equal_tokens(std::string_view given, std::string_view token);

/// Checks that a token can serve as a secret. An empty token is valid and means that the job has no token. `origin` is
/// the file or variable that holds it. Errors: kUsage if the token contains characters that an RPC cannot carry, or is
/// the placeholder printed in deploy/kubernetes; the message says how to make a token.
Status check_token(std::string_view token, std::string_view origin);

/// Returns the identity that all processes with the same token share. Its key is derived from the token (PBKDF2, 10,000
/// rounds of SHA-256) and signs the certificate. The token is thus the job's only secret. Anyone who sees a certificate
/// can guess tokens offline, hence `check_hard_to_guess`. Requires: the token passes that check. Cost: 5 ms.
TlsIdentity identity_of_token(std::string_view token);

/// Checks that a token can protect services that other hosts reach. `origin` is as in check_token. Errors: kUsage if
/// the token has less than 80 bits of entropy, as zxcvbn estimates it (words, names, sequences, keyboard rows, dates,
/// repetitions; Wheeler, USENIX Security 2016); the message says how to make a better one. Cost: 1 ms.
Status check_hard_to_guess(std::string_view token, std::string_view origin);

/// Reads the identity from these files. All servers must present the certificate in them, or one with the same name.
///
/// Errors
///   kUsage  one of the files is missing or cannot be read; the key does not match the certificate; the authorities do
///           not vouch for the certificate for both server and client use; or the authorities exceed 100 KiB or the
///           certificate chain 16 KiB, so that to_line would not fit in an environment variable.
///           The message names the option and the file.
///   kData   a file is not PEM, or the key needs a password.
Result<TlsIdentity> read_identity(const TlsFiles& files);

/// Returns a warning, with advice on protecting the key file, if users other than its owner can read it.
std::optional<std::string> warning_about_key(const std::string& path);

/// Encodes an identity as one printable line for an environment variable.
std::string to_line(const TlsIdentity& identity);

/// Decodes the result of to_line. Errors: kUsage if `line` is not such a result.
Result<TlsIdentity> identity_from_line(std::string_view line);

}  // namespace poprun
