#include "replica/choices/choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun::choices_test {
namespace {

using ::testing::ElementsAre;

TEST(Choices, ReadWhatTheyWrite) {
  for (const Storage storage : {Storage::kOnChip, Storage::kOffChip, Storage::kAuto}) {
    EXPECT_EQ(choice_of<Storage>(word_of(storage)), storage);
  }
  EXPECT_THAT(all_words<Recomputation>(), ElementsAre("none", "standard", "layer", "pipeline", "all"));
  EXPECT_EQ(word_of(Recomputation::kPipeline), "pipeline");
}

TEST(Choices, AnEmptyFieldIsTheDefaultOrLeftOpen) {
  EXPECT_EQ(choice_of<GradientReduction>(""), GradientReduction::kMean);
  EXPECT_EQ(open_choice<Recomputation>(""), std::nullopt);
  EXPECT_EQ(find_choice<Precision>("double"), std::nullopt);
}

TEST(ChoicesDeathTest, AnUnknownWordInTheConfigurationIsABug) {
  EXPECT_DEATH((void)choice_of<Precision>("double"), "choices.h");
}

TEST(Choices, NoWordAsksForPhases) {
  EXPECT_EQ(name_of(Schedule::kPhased), "phased");
  EXPECT_EQ(find_choice<Schedule>("phased"), std::nullopt);
  EXPECT_EQ(schedule_of(Schedule::kSequential, 2), Schedule::kPhased);
  EXPECT_EQ(schedule_of(Schedule::kSequential, 1), Schedule::kSequential);
}

TEST(Choices, StashesAreRecomputedByDefault) {
  EXPECT_EQ(default_recomputation(1, Schedule::kGrouped), Recomputation::kNone);
  EXPECT_EQ(default_recomputation(2, Schedule::kGrouped), Recomputation::kPipeline);
  EXPECT_EQ(default_recomputation(2, Schedule::kPhased), Recomputation::kPipeline);
  EXPECT_EQ(default_recomputation(2, Schedule::kSequential), Recomputation::kNone);
}

}  // namespace
}  // namespace poprun::choices_test
