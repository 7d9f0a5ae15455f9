#include "replica/base/grpc/identity.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <zxcvbn.h>

namespace poprun {
namespace {

// zxcvbn finds words and dates in random tokens, too: of 720,000 tokens made by `openssl rand -hex 16`, it rates 77
// below 96 bits, but none below 85.
constexpr double kTokenBitsMin = 80;
constexpr std::size_t kRatedCharacters = 100;  // The cost of the estimate is quadratic in the length.
constexpr int kRounds = 10'000;
// The certificates and a key together fit in the 128 KiB that Linux allows an environment variable (execve(2)).
constexpr std::size_t kAuthorityBytesMax = 100 * 1024;
constexpr std::size_t kChainBytesMax = 16 * 1024;
constexpr const char* kJobName = "job.poprun-emu";

template <auto release>
struct Release {
  template <typename T>
  void operator()(T* thing) const {
    release(thing);
  }
};
template <typename T, auto release>
using Owned = std::unique_ptr<T, Release<release>>;

using Number = Owned<BIGNUM, BN_clear_free>;
using Key = Owned<EVP_PKEY, EVP_PKEY_free>;
using Certificate = Owned<X509, X509_free>;
using Bio = Owned<BIO, BIO_free_all>;

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(size)};
}

std::string pem_of(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  POPRUN_CHECK(PEM_write_bio_X509(bio.get(), certificate) == 1);
  return text_of(bio.get());
}

std::string pem_of(EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_secmem()));
  POPRUN_CHECK(PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
  return text_of(bio.get());
}

/// Returns a uniform number in [1, order). 16 more bytes are derived than the order has, which makes the bias
/// negligible (FIPS 186-4, B.4.1).
Number private_number(std::string_view token, const BIGNUM* order) {
  constexpr std::string_view kSalt = "poprun-emu: key of a job, P-256, version 1";
  std::array<unsigned char, 48> bytes{};
  POPRUN_CHECK(PKCS5_PBKDF2_HMAC(token.data(), static_cast<int>(token.size()),
                                 reinterpret_cast<const unsigned char*>(kSalt.data()), static_cast<int>(kSalt.size()),
                                 kRounds, EVP_sha256(), static_cast<int>(bytes.size()), bytes.data()) == 1);
  const Owned<BN_CTX, BN_CTX_free> context(BN_CTX_new());
  Number number(BN_bin2bn(bytes.data(), static_cast<int>(bytes.size()), nullptr));
  const Number below(BN_dup(order));
  POPRUN_CHECK(BN_sub_word(below.get(), 1) == 1);
  POPRUN_CHECK(BN_mod(number.get(), number.get(), below.get(), context.get()) == 1);
  POPRUN_CHECK(BN_add_word(number.get(), 1) == 1);
  return number;
}

Key key_of(std::string_view token) {
  const Owned<EC_GROUP, EC_GROUP_free> group(EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1));
  const Number number = private_number(token, EC_GROUP_get0_order(group.get()));
  const Owned<EC_POINT, EC_POINT_free> point(EC_POINT_new(group.get()));
  POPRUN_CHECK(EC_POINT_mul(group.get(), point.get(), number.get(), nullptr, nullptr, nullptr) == 1);
  std::array<unsigned char, 65> encoded{};
  POPRUN_CHECK(EC_POINT_point2oct(group.get(), point.get(), POINT_CONVERSION_UNCOMPRESSED, encoded.data(),
                                  encoded.size(), nullptr) == encoded.size());

  const Owned<OSSL_PARAM_BLD, OSSL_PARAM_BLD_free> builder(OSSL_PARAM_BLD_new());
  OSSL_PARAM_BLD* const build = builder.get();
  POPRUN_CHECK(OSSL_PARAM_BLD_push_utf8_string(build, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) == 1 &&
               OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_PRIV_KEY, number.get()) == 1 &&
               OSSL_PARAM_BLD_push_octet_string(build, OSSL_PKEY_PARAM_PUB_KEY, encoded.data(), encoded.size()) == 1);
  const Owned<OSSL_PARAM, OSSL_PARAM_free> parameters(OSSL_PARAM_BLD_to_param(build));
  const Owned<EVP_PKEY_CTX, EVP_PKEY_CTX_free> context(EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr));
  EVP_PKEY* key = nullptr;
  POPRUN_CHECK(EVP_PKEY_fromdata_init(context.get()) == 1 &&
               EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_KEYPAIR, parameters.get()) == 1);
  return Key(key);
}

void set_common_name(X509_NAME* name, const char* text) {
  POPRUN_CHECK(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(text), -1,
                                          -1, 0) == 1);
}

void add_extension(X509* certificate, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  const Owned<X509_EXTENSION, X509_EXTENSION_free> extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value));
  POPRUN_CHECK(extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1);
}

/// Returns a certificate signed by the job's authority, for the authority itself or for the job's processes, which
/// share the authority's key. The certificate is valid on any date, so host clocks do not matter; a token ends with its
/// job anyway.
Certificate certificate_of(EVP_PKEY* key, bool authority) {
  Certificate made(X509_new());
  X509* const certificate = made.get();
  POPRUN_CHECK(X509_set_version(certificate, X509_VERSION_3) == 1 &&
               ASN1_INTEGER_set(X509_get_serialNumber(certificate), authority ? 1 : 2) == 1 &&
               ASN1_TIME_set_string(X509_getm_notBefore(certificate), "19700101000000Z") == 1 &&
               ASN1_TIME_set_string(X509_getm_notAfter(certificate), "99991231235959Z") == 1 &&
               X509_set_pubkey(certificate, key) == 1);
  set_common_name(X509_get_issuer_name(certificate), "poprun-emu job authority");
  set_common_name(X509_get_subject_name(certificate), authority ? "poprun-emu job authority" : kJobName);
  add_extension(certificate, NID_basic_constraints, authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
  if (authority) {
    add_extension(certificate, NID_key_usage, "critical,keyCertSign");
  } else {
    add_extension(certificate, NID_subject_alt_name, fmt::format("DNS:{}", kJobName).c_str());
    add_extension(certificate, NID_key_usage, "critical,digitalSignature");
    add_extension(certificate, NID_ext_key_usage, "serverAuth,clientAuth");
  }
  POPRUN_CHECK(X509_sign(certificate, key, EVP_sha256()) > 0);
  return made;
}

Result<std::string> content_of(const char* option, const std::string& path) {
  constexpr std::size_t kBytesMax = std::size_t{1} << 20;
  std::ifstream file(path);
  std::string text(kBytesMax + 1, '\0');
  if (!file.is_open() || (file.read(text.data(), static_cast<std::streamsize>(text.size())), file.bad())) {
    return fail(ErrorCode::kUsage, fmt::format("{} {}: cannot be read{}{}", option, path, file.is_open() ? "" : ": ",
                                               file.is_open() ? "" : strerror(errno)));
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kBytesMax) {
    return fail(ErrorCode::kData, fmt::format("{} {}: larger than 1 MiB, so it is not PEM", option, path));
  }
  return text;
}

Result<std::vector<Certificate>> read_certificates(const char* option, const std::string& path) {
  POPRUN_ASSIGN(const std::string text, content_of(option, path));
  const Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  std::vector<Certificate> found;
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    found.emplace_back(next);
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (found.empty() || !at_end) {
    return fail(ErrorCode::kData,
                fmt::format("{} {}: expected certificates as PEM (-----BEGIN CERTIFICATE-----), found {}", option, path,
                            found.empty() ? "none" : "a damaged certificate"));
  }
  return found;
}

Result<Key> read_key(const char* option, const std::string& path) {
  POPRUN_ASSIGN(const std::string text, content_of(option, path));
  const Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  const auto no_password = [](char*, int, int, void*) { return -1; };
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    return fail(ErrorCode::kData, fmt::format("{} {}: expected a PEM private key without a password", option, path));
  }
  return key;
}

/// Checks that a user's certificates fit in the environment variable that passes them to replicas.
Status check_fits(const char* option, const std::string& path, const std::string& pem, std::size_t bytes_max) {
  if (pem.size() <= bytes_max) {
    return {};
  }
  return fail(ErrorCode::kUsage,
              fmt::format("{} {}: the certificates take up {} B, but at most {} B can be passed to replicas; include "
                          "only the certificates that this job needs",
                          option, path, pem.size(), bytes_max));
}

std::string joined_pem(const std::vector<Certificate>& certificates) {
  std::string text;
  for (const Certificate& certificate : certificates) {
    text += pem_of(certificate.get());
  }
  return text;
}

/// Returns the first DNS name in `certificate`, or an empty string if it contains none.
std::string name_of(X509* certificate) {
  const Owned<GENERAL_NAMES, GENERAL_NAMES_free> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_DNS) {
      return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
              static_cast<std::size_t>(ASN1_STRING_length(name->d.dNSName))};
    }
  }
  std::array<char, 256> common{};
  const int size =
      X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, common.data(), common.size());
  return names == nullptr && size > 0 ? common.data() : "";
}

/// Returns why the authorities do not vouch for the first certificate as server and client, or "" if they do.
std::string doubt(const std::vector<Certificate>& chain, const std::vector<Certificate>& authorities) {
  const Owned<X509_STORE, X509_STORE_free> store(X509_STORE_new());
  for (const Certificate& authority : authorities) {
    X509_STORE_add_cert(store.get(), authority.get());
  }
  const auto forget = [](STACK_OF(X509) * certificates) { sk_X509_free(certificates); };
  const std::unique_ptr<STACK_OF(X509), decltype(forget)> between(sk_X509_new_null(), forget);
  for (const Certificate& certificate : chain) {
    sk_X509_push(between.get(), certificate.get());
  }
  for (const int purpose : {X509_PURPOSE_SSL_SERVER, X509_PURPOSE_SSL_CLIENT}) {
    const Owned<X509_STORE_CTX, X509_STORE_CTX_free> context(X509_STORE_CTX_new());
    X509_STORE_CTX_init(context.get(), store.get(), chain.front().get(), between.get());
    X509_STORE_CTX_set_purpose(context.get(), purpose);
    if (X509_verify_cert(context.get()) != 1) {
      return X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()));
    }
  }
  return "";
}

/// This token is published in deploy/kubernetes/base/kustomization.yaml, so it is not a secret.
constexpr std::string_view kPlaceholder = "replace-this-token-in-your-overlay";

}  // namespace

TlsIdentity identity_of_token(std::string_view token) {
  const Key key = key_of(token);
  return {.certificate = pem_of(certificate_of(key.get(), /*authority=*/false).get()),
          .key = pem_of(key.get()),
          .authorities = pem_of(certificate_of(key.get(), /*authority=*/true).get()),
          .peer_name = kJobName};
}

Status check_hard_to_guess(std::string_view token, std::string_view origin) {
  const std::string rated(token.substr(0, kRatedCharacters));
  const double bits = ZxcvbnMatch(rated.c_str(), nullptr, nullptr);
  if (bits >= kTokenBitsMin) {
    return {};
  }
  return fail(ErrorCode::kUsage,
              fmt::format("{}: a token that protects services for other hosts needs at least {} bits of entropy, but "
                          "this token has about {:.0f}; make one with `openssl rand -hex 16`",
                          origin, kTokenBitsMin, bits));
}

Result<TlsIdentity> read_identity(const TlsFiles& files) {
  if (files.certificate.empty() || files.key.empty() || files.authorities.empty()) {
    return fail(ErrorCode::kUsage,
                fmt::format("--tls-cert, --tls-key and --tls-ca must be given together, but {} is missing",
                            files.certificate.empty() ? "--tls-cert"
                            : files.key.empty()       ? "--tls-key"
                                                      : "--tls-ca"));
  }
  POPRUN_ASSIGN(const std::vector<Certificate> chain, read_certificates("--tls-cert", files.certificate));
  POPRUN_ASSIGN(const Key key, read_key("--tls-key", files.key));
  POPRUN_ASSIGN(const std::vector<Certificate> authorities, read_certificates("--tls-ca", files.authorities));
  const bool pair = X509_check_private_key(chain.front().get(), key.get()) == 1;
  ERR_clear_error();
  if (!pair) {
    return fail(ErrorCode::kUsage,
                fmt::format("--tls-key {} is not the key of --tls-cert {}", files.key, files.certificate));
  }
  const std::string why = doubt(chain, authorities);
  ERR_clear_error();
  if (!why.empty()) {
    return fail(ErrorCode::kUsage, fmt::format("--tls-ca {} does not vouch for --tls-cert {} as the certificate of a "
                                               "server and a client: {}",
                                               files.authorities, files.certificate, why));
  }
  const std::string name = name_of(chain.front().get());
  if (name.empty() || name.find('\0') != std::string::npos) {
    return fail(ErrorCode::kUsage, fmt::format("--tls-cert {} contains no host name; it needs a subjectAltName "
                                               "with a DNS name",
                                               files.certificate));
  }
  TlsIdentity identity{.certificate = joined_pem(chain),
                       .key = pem_of(key.get()),
                       .authorities = joined_pem(authorities),
                       .peer_name = name};
  POPRUN_TRY(check_fits("--tls-ca", files.authorities, identity.authorities, kAuthorityBytesMax));
  POPRUN_TRY(check_fits("--tls-cert", files.certificate, identity.certificate, kChainBytesMax));
  return identity;
}

std::optional<std::string> warning_about_key(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0 || (file.st_mode & (S_IRWXG | S_IRWXO)) == 0) {
    return std::nullopt;
  }
  return fmt::format("--tls-key {} can be read by users other than its owner; run chmod 600 {}", path, path);
}

// Lines of PEM are joined by '|' and the four parts by ';'. Neither character occurs in a part.
std::string to_line(const TlsIdentity& identity) {
  std::string line =
      fmt::format("{};{};{};{}", identity.certificate, identity.key, identity.authorities, identity.peer_name);
  std::replace(line.begin(), line.end(), '\n', '|');
  return line;
}

Result<TlsIdentity> identity_from_line(std::string_view line) {
  std::string text(line);
  std::replace(text.begin(), text.end(), '|', '\n');
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ';');) {
    parts.push_back(part);
  }
  if (parts.size() != 4) {
    return fail(ErrorCode::kUsage,
                fmt::format("expected a TLS identity of 4 parts, as poprun-emu creates it, found {}", parts.size()));
  }
  return TlsIdentity{parts[0], parts[1], parts[2], parts[3]};
}

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
    return fail(ErrorCode::kUsage, fmt::format("{}: a token must consist of printable ASCII without blanks", origin));
  }
  if (token == kPlaceholder) {
    return fail(ErrorCode::kUsage, fmt::format("{} is the placeholder from deploy/kubernetes, which is public; "
                                               "make a real token with `openssl rand -hex 16`",
                                               origin));
  }
  return {};
}

}  // namespace poprun
