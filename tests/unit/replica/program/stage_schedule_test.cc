/// Schedules of Programs, as text pictures.

#include "replica/program/stage_schedule.h"

#include <numeric>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/screen/schedule_picture.h"
#include "tests/unit/replica/pipeline_program.h"

namespace poprun::stage_schedule_test {
namespace {

using launcher::PictureFrame;
using testing::add_execute;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::pipeline_program;
using ::testing::SizeIs;
using testing::StageTime;
using ::testing::StartsWith;

std::string picture(const Program& program, const proto::Function& function, const PictureFrame& frame = {}) {
  return launcher::schedule_picture(stage_schedule(program, function), frame);
}

std::string picture_of(const Timetable& table, const StageTime& time, const PictureFrame& frame = {}) {
  const Program program = pipeline_program(table, std::vector(table.ipu_of_stage.size(), time));
  return picture(program, *find_function(program, "train"), frame);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

const StageTime kUpdated{.update = 1};

TEST(StageSchedule, EachIpuUpdatesBehindItsLastGradientWhileEarlierStagesRampDown) {
  EXPECT_EQ(picture_of(make_timetable(Schedule::kGrouped, {0, 1, 2}, 12, true), kUpdated),
            "IPU 0 | A1 A2 A3   A4   A5G1 A6G2 A7G3 A8G4 A9G5 A10G6 A11G7 A12G8  G9     G10    G11 G12 "
            "U\n"
            "IPU 1 |    A1 A2   A3G1 A4G2 A5G3 A6G4 A7G5 A8G6 A9G7  A10G8 A11G9  A12G10 G11    G12 U\n"
            "IPU 2 |       A1G1 A2G2 A3G3 A4G4 A5G5 A6G6 A7G7 A8G8  A9G9  A10G10 A11G11 A12G12 U\n");
}

TEST(StageSchedule, InterleavedHasTheFirstGradientOfTheFirstIpuBehindTheThirdForwardPart) {
  EXPECT_EQ(picture_of(make_timetable(Schedule::kInterleaved, {0, 1, 2}, 4, true), kUpdated),
            "IPU 0 | A1    A2    A3 G1 A4 G2    G3    G4 U\n"
            "IPU 1 |    A1    A2 G1 A3 G2 A4 G3    G4 U\n"
            "IPU 2 |       A1 G1 A2 G2 A3 G3 A4 G4 U\n");
}

TEST(StageSchedule, ShowsWhatIsRecomputed) {
  EXPECT_EQ(picture_of(make_timetable(Schedule::kGrouped, {0, 1}, 2, true), {.update = 1, .recomputation = 1}),
            "IPU 0 | A1 A2     R1G1   R2G2 U\n"
            "IPU 1 |    A1R1G1 A2R2G2 U\n");
}

TEST(StageSchedule, SequentialWorksInOnePlaceAtATime) {
  EXPECT_EQ(picture_of(make_timetable(Schedule::kSequential, {0, 1}, 2, true), kUpdated),
            "IPU 0 | A1      G1 A2      G2 U\n"
            "IPU 1 |    A1G1       A2G2 U\n");
}

TEST(StageSchedule, InferenceHasForwardPartsOnly) {
  EXPECT_EQ(picture_of(make_timetable(Schedule::kGrouped, {0, 1}, 3, false), kUpdated),
            "IPU 0 | A1 A2 A3\n"
            "IPU 1 |    A1 A2 A3\n");
}

TEST(StageSchedule, AnIpuMayHaveSeveralStages) {
  EXPECT_EQ(picture_of(make_timetable(Schedule::kGrouped, {0, 1, 0}, 2, true), {}),
            "IPU 0 | A1 A2 A1G1 A2G2 G1 G2\n"
            "IPU 1 |    A1 A2   G1   G2\n");
}

TEST(StageSchedule, StagesOfOneIpuTakeTurns) {
  EXPECT_EQ(picture_of(make_timetable(Schedule::kGrouped, {0, 0}, 3, true), kUpdated),
            "IPU 0 | A1 A2A1G1 A3A2G2G1 A3G3G2 G3 U\n");
}

TEST(StageSchedule, AnUpdateIsBehindTheLastGradientHoweverManyStepsItTakes) {
  Program program = pipeline_program(make_timetable(Schedule::kGrouped, {0, 1, 2}, 2, true),
                                     std::vector(3, StageTime{.update = 1'000}));
  proto::Function& train = *program.mutable_functions()->rbegin();
  for (std::uint32_t ipu = 0; ipu < 3; ++ipu) {
    add_execute(*train.mutable_steps(), ipu, 1'000);
  }

  EXPECT_EQ(picture(program, train),
            "IPU 0 | A1 A2           G1 G2 U\n"
            "IPU 1 |    A1 A2   G1   G2 U\n"
            "IPU 2 |       A1G1 A2G2 U\n");
}

TEST(StageSchedule, AnUpdateThatNeedsAnotherIpuIsBehindItsLastPart) {
  Program program = pipeline_program(make_timetable(Schedule::kGrouped, {0, 1, 2}, 2, true), std::vector<StageTime>(3));
  proto::Function& train = *program.mutable_functions()->rbegin();
  proto::Copy& gradient = *train.add_steps()->mutable_copy();
  gradient.add_from(1);
  gradient.add_to(2);
  for (std::uint32_t ipu = 0; ipu < 3; ++ipu) {
    add_execute(*train.mutable_steps(), ipu, 1);
  }

  EXPECT_EQ(picture(program, train),
            "IPU 0 | A1 A2           G1 G2 U\n"
            "IPU 1 |    A1 A2   G1   G2 U\n"
            "IPU 2 |       A1G1 A2G2    U\n");
}

TEST(StageSchedule, AnUpdateThatWaitsForAllIpusIsBehindThemAll) {
  Program program = pipeline_program(make_timetable(Schedule::kGrouped, {0, 1}, 2, true), std::vector<StageTime>(2));
  proto::Function& train = *program.mutable_functions()->rbegin();
  proto::Copy& norms = *train.add_steps()->mutable_copy();
  norms.add_from(1);
  norms.add_to(0);
  add_execute(*train.mutable_steps(), 0, 1);
  add_execute(*train.mutable_steps(), 1, 1);

  EXPECT_EQ(picture(program, train),
            "IPU 0 | A1 A2   G1   G2 U\n"
            "IPU 1 |    A1G1 A2G2    U\n");
}

TEST(StageSchedule, TheMiddleThatDoesNotFitIsLeftOutAndCounted) {
  EXPECT_EQ(picture_of(make_timetable(Schedule::kGrouped, {0, 1}, 1'000'000, true), kUpdated, {.width = 80}),
            "IPU 0 | A1 A2   A3G1 A4G2 A5G3 .. A1000000G999998 G999999          G1000000 U\n"
            "IPU 1 |    A1G1 A2G2 A3G3 A4G4 .. A999999G999999  A1000000G1000000 U\n"
            ".. 999,994 cycles left out; a wider terminal shows more\n");
}

TEST(StageSchedule, NoLineIsWiderThanTheScreen) {
  for (const std::int64_t micro_batches : {1, 12, 1000}) {
    for (std::size_t width = 60; width <= 200; width += 7) {
      const std::string text = picture_of(make_timetable(Schedule::kGrouped, {0, 1, 2, 3}, micro_batches, true),
                                          {.update = 1, .recomputation = 1}, {.width = width});
      for (const std::string& line : lines_of(text)) {
        EXPECT_LE(line.size(), width) << text;
      }
    }
  }
}

TEST(StageSchedule, OfAScreenThatIsTooNarrowHasOneCycleAtEachEnd) {
  EXPECT_EQ(picture_of(make_timetable(Schedule::kGrouped, {0, 1}, 8, true), kUpdated, {.width = 1}),
            "IPU 0 | A1 .. U\n"
            "IPU 1 |    ..\n"
            ".. 9 cycles left out; a wider terminal shows more\n");
}

TEST(StageSchedule, OfManyIpusHasTheFirstAndTheLast) {
  std::vector<std::uint32_t> ipus(64);
  std::iota(ipus.begin(), ipus.end(), 0U);
  const Timetable table = make_timetable(Schedule::kGrouped, ipus, 128, true);

  EXPECT_THAT(lines_of(picture_of(table, kUpdated, {.width = 60, .all_ipus = false})),
              ElementsAre(StartsWith("IPU  0 | A1 A2 A3 "), StartsWith("IPU  1 |    A1 A2 "), "..  61 IPUs",
                          StartsWith("IPU 63 |  "), HasSubstr("left out")));
  EXPECT_THAT(lines_of(picture_of(table, kUpdated, {.width = 60})), SizeIs(65));
}

TEST(StageSchedule, OfAFunctionWithoutStagesIsEmpty) {
  EXPECT_EQ(picture(testing::program_of_ipus(1), proto::Function{}), "");
}

}  // namespace
}  // namespace poprun::stage_schedule_test
