#include "replica/base/grpc/identity.h"

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "replica/base/grpc/channel.h"
#include "tests/unit/temporary_folder.h"

namespace poprun {
namespace {

constexpr const char* kToken = "0123456789abcdef0123456789abcdef";

TEST(Identity, OfATokenHasTheSameKeyEverywhere) {
  const TlsIdentity one = identity_of_token(kToken);
  EXPECT_EQ(one.key, identity_of_token(kToken).key);
  EXPECT_NE(one.key, identity_of_token("0123456789abcdef0123456789abcdee").key);
  EXPECT_NE(one.certificate.find("BEGIN CERTIFICATE"), std::string::npos);
  EXPECT_EQ(one.peer_name, "job.poprun-emu");
}

TEST(Identity, TravelsAsOnePrintableLine) {
  const TlsIdentity identity = identity_of_token(kToken);
  const std::string line = to_line(identity);
  EXPECT_EQ(line.find_first_of("\n\"'$`\\"), std::string::npos);
  const auto again = identity_from_line(line);
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, identity);
  EXPECT_FALSE(identity_from_line("token"));
  EXPECT_FALSE(identity_from_line(""));
}

TEST(Identity, NeedsATokenThatNobodyGuesses) {
  for (const char* random : {"415b431a297904d8e0d2454ec59e6cf7", "BLfBqUxMiA5rvs9RyzCxwg==", "lqvBw0J6o2tZ9cXe4DkYpA",
                             // Random, too, but with words, dates and repetitions, as in one of 10,000 tokens.
                             "6006ac0dc077caf4f0f4c305aa102528", "c345619601708e919393579a1bea500f"}) {
    EXPECT_TRUE(check_hard_to_guess(random, "POPRUN_EMU_TOKEN")) << random;
  }
  for (const char* weak : {"", "secret", "0123456789abcdef0123456789abcdef", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                           "passwordpasswordpassword", "correct-horse-battery-staple", "qwertyuiopasdfghjklzxcvbnm",
                           "my-training-token-2026", "2aa214e15eed2560"}) {
    const Status refused = check_hard_to_guess(weak, "POPRUN_EMU_TOKEN");
    ASSERT_FALSE(refused) << weak;
    EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  }
  EXPECT_EQ(check_hard_to_guess("passwordpassword", "POPRUN_EMU_TOKEN").error().message,
            "POPRUN_EMU_TOKEN: a token that protects services for other hosts needs at least 80 bits of entropy, but "
            "this token has about 1; make one with `openssl rand -hex 16`");
  EXPECT_TRUE(check_hard_to_guess(std::string(1 << 20, 'x') + "415b431a297904d8e0d2454ec59e6cf7", "").error().code ==
              ErrorCode::kUsage);
}

TEST(Identity, OfFilesWantsAllThree) {
  const auto refused = read_identity({.certificate = "c.pem", .key = "", .authorities = "a.pem"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_EQ(refused.error().message,
            "--tls-cert, --tls-key and --tls-ca must be given together, but --tls-key is missing");
}

TEST(Identity, OfFilesWantsWholeCertificates) {
  const testing::TemporaryFolder folder;
  const TlsIdentity job = identity_of_token(kToken);
  const TlsFiles files{.certificate = folder.write("cert.pem", job.certificate),
                       .key = folder.write("key.pem", job.key),
                       .authorities = (folder.path() / "ca.pem").string()};
  const std::string damaged = "-----BEGIN CERTIFICATE-----\nnot base64!\n-----END CERTIFICATE-----\n";
  for (const auto& [text, found] : std::map<std::string, std::string>{
           {"", "none"}, {"hello\n", "none"}, {job.authorities + damaged, "a damaged certificate"}}) {
    static_cast<void>(folder.write("ca.pem", text));
    const auto refused = read_identity(files);
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().code, ErrorCode::kData);
    EXPECT_NE(refused.error().message.find(files.authorities), std::string::npos) << refused.error().message;
    EXPECT_TRUE(refused.error().message.ends_with("found " + found)) << refused.error().message;
  }
}

TEST(Identity, WarnsOfAKeyThatOthersCanRead) {
  const testing::TemporaryFolder folder;
  const std::string key = folder.write("key.pem", "");
  using std::filesystem::perms;
  std::filesystem::permissions(key, perms::owner_read | perms::owner_write);
  EXPECT_EQ(warning_about_key(key), std::nullopt);
  EXPECT_EQ(warning_about_key(key + ".missing"), std::nullopt);
  for (const perms others : {perms::group_read, perms::others_read}) {
    std::filesystem::permissions(key, perms::owner_read | others);
    ASSERT_TRUE(warning_about_key(key));
    EXPECT_EQ(*warning_about_key(key),
              fmt::format("--tls-key {} can be read by users other than its owner; run chmod 600 {}", key, key));
  }
}

TEST(Channel, KnowsAddressesOfThisMachineOnly) {
  for (const char* local : {"127.0.0.1", "127.8.9.10", "[::1]", "::1", "localhost"}) {
    EXPECT_TRUE(is_loopback(local).value_or(false)) << local;
  }
  for (const char* remote : {"10.0.0.1", "128.0.0.1", "[2001:db8::1]", "::", "0.0.0.0"}) {
    const Result<bool> loopback = is_loopback(remote);
    ASSERT_TRUE(loopback) << remote;
    EXPECT_FALSE(*loopback) << remote;
  }
}

// Linux does not start a process that has an environment variable of 128 KiB.
TEST(Identity, OfFilesFitsIntoAnEnvironmentVariable) {
  const testing::TemporaryFolder folder;
  const TlsIdentity job = identity_of_token(kToken);
  TlsFiles files{.certificate = folder.write("cert.pem", job.certificate),
                 .key = folder.write("key.pem", job.key),
                 .authorities = folder.write("ca.pem", job.authorities)};
  const auto read = read_identity(files);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, job);
  std::string many;
  while (many.size() <= 100 * 1024) {
    many += job.authorities;
  }
  files.authorities = folder.write("bundle.pem", many);

  const auto refused = read_identity(files);

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_EQ(refused.error().message,
            fmt::format("--tls-ca {}: the certificates take up {} B, but at most 102400 B can be passed to replicas; "
                        "include only the certificates that this job needs",
                        files.authorities, many.size()));
}

TEST(Token, EqualsItselfAlone) {
  EXPECT_TRUE(equal_tokens("secret", "secret"));
  for (const char* other : {"", "s", "secre", "secrets", "Secret", "secreT", "secretsecret"}) {
    EXPECT_FALSE(equal_tokens(other, "secret")) << other;
    EXPECT_FALSE(equal_tokens("secret", other)) << other;
  }
  EXPECT_FALSE(equal_tokens({"secret\0", 7}, "secret"));
}

TEST(Token, OfTheManifestsIsNoSecret) {
  const Status refused = check_token("replace-this-token-in-your-overlay", "POPRUN_EMU_TOKEN");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
  EXPECT_NE(refused.error().message.find("openssl rand -hex 16"), std::string::npos);
  EXPECT_FALSE(check_token("two words", "a file"));
  EXPECT_TRUE(check_token("", "a file"));
  EXPECT_TRUE(check_token("0123456789abcdef0123456789abcdef", "a file"));
}

}  // namespace

}  // namespace poprun
