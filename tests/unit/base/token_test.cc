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

}  // namespace
}  // namespace poprun
