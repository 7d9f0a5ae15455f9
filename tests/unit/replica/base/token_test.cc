#include "replica/base/token.h"

#include <gtest/gtest.h>

namespace poprun {
namespace {

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
