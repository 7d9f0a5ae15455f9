/// Schedules: which part of a pipeline works on which micro-batch in which cycle.

#include "replica/compiler/techniques/pipeline/schedule.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <tuple>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun::schedule_test {
namespace {

using ::testing::HasSubstr;

constexpr Part kForward = Part::kForward;
constexpr Part kBackward = Part::kBackward;

std::vector<std::uint32_t> one_ipu_a_stage(std::uint32_t stages) {
  std::vector<std::uint32_t> ipus(stages);
  std::iota(ipus.begin(), ipus.end(), 0U);
  return ipus;
}

/// Returns every cycle of the table, with repeats unrolled.
std::vector<Cycle> unrolled(const Timetable& table) {
  std::vector<Cycle> all;
  for (const Repeat& repeat : table.repeats) {
    for (std::int64_t round = 0; round < repeat.rounds; ++round) {
      for (Cycle cycle : repeat.cycles) {
        for (Slot& slot : cycle.slots) {
          slot.micro_batch += round;
        }
        all.push_back(std::move(cycle));
      }
    }
  }
  return all;
}

/// Draws a table: rows are IPUs and columns are cycles; A1 is the forward and G1 the backward part of micro-batch 0.
std::string picture(const Timetable& table) {
  std::map<std::uint32_t, std::string> rows;
  for (const std::uint32_t ipu : table.ipu_of_stage) {
    rows[ipu];
  }
  for (const Cycle& cycle : unrolled(table)) {
    std::map<std::uint32_t, std::string> cells;
    for (const Slot& slot : cycle.slots) {
      cells[slot.ipu] += fmt::format("{}{}", slot.part == kForward ? "A" : "G", slot.micro_batch + 1);
    }
    for (auto& [ipu, row] : rows) {
      row += fmt::format("{:<7}", cells[ipu]);
    }
  }
  std::string text;
  for (auto& [ipu, row] : rows) {
    text += fmt::format("{}: {}\n", ipu, row.substr(0, row.find_last_not_of(' ') + 1));
  }
  return text;
}

/// Returns the cycle in which a part works on a micro-batch according to the documented schedules.
std::int64_t documented_cycle(const Timetable& table, const Slot& slot) {
  const auto n = static_cast<std::int64_t>(table.ipu_of_stage.size());
  const std::int64_t s = slot.stage;
  const std::int64_t i = slot.micro_batch;
  const bool forward = slot.part == kForward;
  switch (table.schedule) {
    case Schedule::kSequential:
      return table.training ? 2 * n * i + (forward ? s : 2 * n - 1 - s) : n * i + s;
    case Schedule::kGrouped:
      return forward ? i + s : i + 2 * (n - 1) - s;
    case Schedule::kInterleaved:
      return table.training ? 2 * i + (forward ? s : 2 * n - 1 - s) : i + s;
    case Schedule::kPhased:
      return table.micro_batches * (forward ? s : 2 * (n - 1) - s) + i;
  }
  return -1;
}

using Work = std::tuple<Part, std::uint32_t, std::int64_t>;  // part, stage, micro-batch

/// Returns (cycle, position in the cycle) of all work; fails if any work is done twice.
std::map<Work, std::pair<std::int64_t, std::size_t>> places_of(const Timetable& table) {
  std::map<Work, std::pair<std::int64_t, std::size_t>> places;
  const std::vector<Cycle> cycles = unrolled(table);
  for (std::size_t c = 0; c < cycles.size(); ++c) {
    EXPECT_FALSE(cycles[c].slots.empty());
    for (std::size_t k = 0; k < cycles[c].slots.size(); ++k) {
      const Slot& slot = cycles[c].slots[k];
      EXPECT_EQ(slot.ipu, table.ipu_of_stage[slot.stage]);
      EXPECT_TRUE(places.try_emplace({slot.part, slot.stage, slot.micro_batch}, c, k).second);
    }
  }
  return places;
}

/// Returns the largest number of micro-batches between the start of their forward and the end of their backward part.
std::int64_t most_in_flight(const std::vector<Cycle>& cycles, std::uint32_t stage) {
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (const Cycle& cycle : cycles) {
    for (const Slot& slot : cycle.slots) {
      if (slot.stage == stage) {
        now += slot.part == kForward ? 1 : -1;
        most = std::max(most, now);
      }
    }
  }
  return most;
}

/// Properties that hold for every table. Parameters: schedule, stages, training.
class TimetableProperty : public ::testing::TestWithParam<std::tuple<Schedule, std::uint32_t, bool>> {
 protected:
  template <typename Check>
  void for_each_table(const Check& check) const {
    const auto [schedule, stages, training] = GetParam();
    for (std::int64_t micro_batches = 1; micro_batches <= 64; ++micro_batches) {
      SCOPED_TRACE(micro_batches);
      check(make_timetable(schedule, one_ipu_a_stage(stages), micro_batches, training));
      // Stages go up and then down the IPUs again: IPU 0 has the first and the last stage.
      std::vector<std::uint32_t> there_and_back = one_ipu_a_stage(stages);
      for (std::uint32_t& ipu : there_and_back) {
        ipu = std::min(ipu, stages - 1 - ipu);
      }
      check(make_timetable(schedule, there_and_back, micro_batches, training));
      if (HasFailure()) {
        return;
      }
    }
  }
};

TEST_P(TimetableProperty, EveryPartOfEveryMicroBatchWorksOnceInItsDocumentedCycle) {
  for_each_table([](const Timetable& table) {
    const auto places = places_of(table);
    const std::size_t parts = table.ipu_of_stage.size() * (table.training ? 2 : 1);
    ASSERT_EQ(places.size(), parts * static_cast<std::size_t>(table.micro_batches));
    for (const auto& [work, place] : places) {
      const auto& [part, stage, micro_batch] = work;
      ASSERT_TRUE(0 <= micro_batch && micro_batch < table.micro_batches);
      ASSERT_EQ(place.first, documented_cycle(table, {0, stage, part, micro_batch}));
    }
  });
}

TEST_P(TimetableProperty, AConsumerWorksInTheCycleBehindItsProducerOrInTheNextPhase) {
  for_each_table([](const Timetable& table) {
    const auto places = places_of(table);
    const bool phased = table.schedule == Schedule::kPhased;
    const std::int64_t later = phased ? table.micro_batches : 1;
    const auto last = static_cast<std::uint32_t>(table.ipu_of_stage.size()) - 1;
    for (std::int64_t i = 0; i < table.micro_batches; ++i) {
      for (std::uint32_t s = 0; s < last; ++s) {
        ASSERT_EQ(places.at({kForward, s, i}).first + later, places.at({kForward, s + 1, i}).first);
        if (table.training) {
          ASSERT_EQ(places.at({kBackward, s + 1, i}).first + later, places.at({kBackward, s, i}).first);
        }
      }
      if (table.training) {
        const auto forward = places.at({kForward, last, i});
        const auto backward = places.at({kBackward, last, i});
        ASSERT_LT(forward, backward);
        ASSERT_EQ(backward.first - forward.first, phased || table.schedule == Schedule::kGrouped ? 0 : 1);
      }
    }
  });
}

TEST_P(TimetableProperty, ACycleIsOrderedByIpuThenForwardBeforeBackward) {
  for_each_table([](const Timetable& table) {
    for (const Cycle& cycle : unrolled(table)) {
      ASSERT_TRUE(std::ranges::is_sorted(cycle.slots, {}, [](const Slot& slot) {
        return std::tuple(slot.ipu, slot.part == kBackward,
                          slot.part == kForward ? static_cast<int>(slot.stage) : -static_cast<int>(slot.stage));
      }));
    }
  });
}

TEST_P(TimetableProperty, StashesAreAsLongAsMicroBatchesAreInFlight) {
  for_each_table([](const Timetable& table) {
    if (!table.training) {
      return;
    }
    const auto stages = static_cast<std::uint32_t>(table.ipu_of_stage.size());
    const std::vector<Cycle> cycles = unrolled(table);
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
      ASSERT_EQ(most_in_flight(cycles, stage), stash_length(table.schedule, stages, stage, table.micro_batches));
    }
  });
}

TEST_P(TimetableProperty, TheTableStaysSmallHoweverManyMicroBatchesThereAre) {
  const auto [schedule, stages, training] = GetParam();
  constexpr std::int64_t kMany = 1'000'000'000;

  const Timetable table = make_timetable(schedule, one_ipu_a_stage(stages), kMany, training);

  std::map<std::uint32_t, std::int64_t> forward_parts;
  std::size_t cycles = 0;
  for (const auto& repeat : table.repeats) {
    cycles += repeat.cycles.size();
    for (const Cycle& cycle : repeat.cycles) {
      for (const Slot& slot : cycle.slots) {
        forward_parts[slot.stage] += slot.part == kForward ? repeat.rounds : 0;
      }
    }
  }
  EXPECT_LE(table.repeats.size(), schedule == Schedule::kPhased ? 2 * std::size_t{stages} - 1 : 3U);
  EXPECT_LE(cycles, 4 * stages);
  for (const auto& [stage, count] : forward_parts) {
    EXPECT_EQ(count, kMany) << stage;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TimetableProperty,
                         ::testing::Combine(::testing::Values(Schedule::kSequential, Schedule::kGrouped,
                                                              Schedule::kInterleaved, Schedule::kPhased),
                                            ::testing::Range(1U, 9U), ::testing::Bool()));

TEST(Timetable, ThePlainJobRepeatsOneMicroBatch) {
  const Timetable table = make_timetable(Schedule::kSequential, {0}, 5, true);

  ASSERT_EQ(table.repeats.size(), 1U);
  EXPECT_EQ(table.repeats[0].rounds, 5);
  EXPECT_EQ(table.repeats[0].cycles.size(), 2U);
}

TEST(Timetable, GroupedMeetsTheFirstGradientOfTheFirstIpuWithTheFifthForwardPart) {
  EXPECT_EQ(picture(make_timetable(Schedule::kGrouped, {0, 1, 2}, 12, true)),
            "0: A1     A2     A3     A4     A5G1   A6G2   A7G3   A8G4   A9G5   A10G6  A11G7  "
            "A12G8  G9     G10    G11    G12\n"
            "1:        A1     A2     A3G1   A4G2   A5G3   A6G4   A7G5   A8G6   A9G7   A10G8  "
            "A11G9  A12G10 G11    G12\n"
            "2:               A1G1   A2G2   A3G3   A4G4   A5G5   A6G6   A7G7   A8G8   A9G9   "
            "A10G10 A11G11 A12G12\n");
}

TEST(Timetable, InterleavedMeetsTheFirstGradientOfTheFirstIpuBehindTheThirdForwardPart) {
  EXPECT_EQ(picture(make_timetable(Schedule::kInterleaved, {0, 1, 2}, 5, true)),
            "0: A1            A2            A3     G1     A4     G2     A5     G3            "
            "G4            G5\n"
            "1:        A1            A2     G1     A3     G2     A4     G3     A5     G4     "
            "       G5\n"
            "2:               A1     G1     A2     G2     A3     G3     A4     G4     A5     "
            "G5\n");
}

TEST(Timetable, SequentialWorksInOnePlaceAtATime) {
  EXPECT_EQ(picture(make_timetable(Schedule::kSequential, {0, 1}, 2, true)),
            "0: A1                   G1     A2                   G2\n"
            "1:        A1     G1                   A2     G2\n");
}

TEST(Timetable, PhasesWorkOnAllMicroBatchesBeforeTheNextOneBegins) {
  EXPECT_EQ(picture(make_timetable(Schedule::kPhased, {0, 1, 0}, 2, true)),
            "0: A1     A2                   A1G1   A2G2                 G1     G2\n"
            "1:               A1     A2                   G1     G2\n");
}

TEST(Timetable, EvaluationHasForwardPartsOnly) {
  EXPECT_EQ(picture(make_timetable(Schedule::kGrouped, {0, 1, 2}, 3, false)),
            "0: A1     A2     A3\n"
            "1:        A1     A2     A3\n"
            "2:               A1     A2     A3\n");
}

TEST(Timetable, AnIpuThatHasTwoStagesWorksOnBothInACycle) {
  EXPECT_EQ(picture(make_timetable(Schedule::kGrouped, {0, 1, 0}, 4, true)),
            "0: A1     A2     A3A1G1 A4A2G2 A3G3G1 A4G4G2 G3     G4\n"
            "1:        A1     A2     A3G1   A4G2   G3     G4\n");
}

}  // namespace
}  // namespace poprun::schedule_test
