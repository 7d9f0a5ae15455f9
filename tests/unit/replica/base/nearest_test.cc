#include <vector>

#include <gtest/gtest.h>

#include "replica/base/text.h"

namespace poprun {
namespace {

TEST(Nearest, FindsTypingMistakes) {
  const std::vector<std::string> names = {"learning-rate", "momentum", "seed", "steps"};
  EXPECT_EQ(nearest("learning-rat", names), "learning-rate");
  EXPECT_EQ(nearest("learning_rate", names), "learning-rate");
  EXPECT_EQ(nearest("setps", names), "steps");
  EXPECT_EQ(nearest("sede", names), "seed");
}

TEST(Nearest, GuessesNothingFarAway) {
  const std::vector<std::string> names = {"learning-rate", "seed"};
  EXPECT_EQ(nearest("pipeline-stages", names), "");
  EXPECT_EQ(nearest("", names), "");
  EXPECT_EQ(nearest(std::string(100000, 'x'), names), "");
}

TEST(Nearest, SuggestsOneNameOrListsAll) {
  const std::vector<std::string> names = {"bow", "mk1", "mk2"};
  EXPECT_EQ(suggestion("mk3", names), "did you mean mk1?");
  EXPECT_EQ(suggestion("abacus", names), "available: bow, mk1, mk2");
}

}  // namespace
}  // namespace poprun
