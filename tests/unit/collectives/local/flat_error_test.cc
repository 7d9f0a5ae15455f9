#include <string>

#include <gtest/gtest.h>

#include "collectives/local/rendezvous.h"

namespace poprun::collectives {
namespace {

TEST(FlatError, KeepsCodeMessageAndFacts) {
  const Error error{
      ErrorCode::kInfrastructure, "barrier 4: replicas 0, 4095 did not arrive within 2 s", {.missing = {0, 4095}}};
  const Error shortage{
      ErrorCode::kHostResources, "too little", {.shortage = Shortage{.needed = Bytes{7}, .had = Bytes{5}}}};

  EXPECT_EQ(FlatError(error).error().code, error.code);
  EXPECT_EQ(FlatError(error).error().message, error.message);
  EXPECT_EQ(FlatError(error).error().facts, error.facts);
  EXPECT_EQ(FlatError(shortage).error().facts, shortage.facts);
}

TEST(FlatError, CutsALongMessageBetweenCharacters) {
  std::string message = "x";
  while (message.size() < 2'000) {
    message += "\u00e9";
  }

  const Error back = FlatError({ErrorCode::kBug, message}).error();

  EXPECT_EQ(back.message, message.substr(0, 999));
  EXPECT_TRUE(back.facts.missing.empty());
  EXPECT_FALSE(back.facts.shortage);
}

}  // namespace
}  // namespace poprun::collectives
