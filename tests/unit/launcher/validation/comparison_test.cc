#include "launcher/validation/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun::launcher::validation {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

Row row(const std::string& name, const std::string& family, double published, double ours) {
  Row row;
  row.name = name;
  row.published.family = family;
  row.published.value = published;
  row.published.unit = "samples/s";
  row.ours = ours;
  return row;
}

/// A row of the series "s" whose step, in seconds, is accumulation * cycle + rest. Each replica processes 4 items per
/// micro-batch and has two IPUs.
Row in_series(const std::string& name, std::uint64_t replicas, std::uint64_t accumulation, double published_cycle,
              double our_cycle) {
  constexpr double kRest = 0.5;
  const auto items = static_cast<double>(4 * replicas * accumulation);
  const auto rate = [&](double cycle) { return items / (static_cast<double>(accumulation) * cycle + kRest); };
  Row one = row(name, "f", rate(published_cycle), rate(our_cycle));
  one.published.series = "s";
  one.replicas = replicas;
  one.ipus = 2 * replicas;
  one.accumulation = accumulation;
  one.items_per_step = items;
  return one;
}

TEST(Comparison, TakesARatioAboveOneForAClockThatIsTooFast) {
  EXPECT_DOUBLE_EQ(row("a", "f", 100, 110).ratio(), 1.1);

  Row time = row("a", "f", 2, 1);
  time.published.unit = "s";
  EXPECT_DOUBLE_EQ(time.ratio(), 2);
}

TEST(Comparison, AveragesTheErrorsOfEachFamilyAndOfAllRows) {
  Row failed = row("d", "one", 100, 0);
  failed.failure = "cannot be compared";

  const std::vector<Errors> errors = errors_of(
      {row("a", "two", 100, 90), row("b", "one", 100, 104), row("c", "two", 100, 130), failed, row("e", "", 10, 10)});

  ASSERT_EQ(errors.size(), 4U);
  EXPECT_EQ(errors[0].family, "one");
  EXPECT_EQ(errors[0].rows, 1U);
  EXPECT_EQ(errors[1].family, "others");
  EXPECT_EQ(errors[2].family, "two");
  EXPECT_NEAR(errors[2].mean, 0.2, 1e-12);
  EXPECT_NEAR(errors[2].worst, 0.3, 1e-12);
  EXPECT_NEAR(errors[2].bias, 0.1, 1e-12);
  EXPECT_EQ(errors[3].family, "all");
  EXPECT_EQ(errors[3].rows, 4U);
  EXPECT_NEAR(errors[3].mean, (0.1 + 0.04 + 0.3) / 4, 1e-12);
}

TEST(Comparison, SeparatesAStepIntoCyclesAndARest) {
  const std::vector<Scaling> scaling =
      scaling_of({in_series("large", 8, 2, 0.1, 0.2), in_series("small", 2, 8, 0.1, 0.2)});

  ASSERT_EQ(scaling.size(), 1U);
  EXPECT_EQ(scaling[0].from, "small");
  EXPECT_EQ(scaling[0].to, "large");
  EXPECT_NEAR(scaling[0].published, (64 / 0.7) / (64 / 1.3), 1e-12);
  EXPECT_NEAR(scaling[0].ours, (64 / 0.9) / (64 / 2.1), 1e-12);
  ASSERT_TRUE(scaling[0].our_parts);
  EXPECT_NEAR(scaling[0].published_parts->cycle_seconds, 0.1, 1e-9);
  EXPECT_NEAR(scaling[0].published_parts->rest_seconds, 0.5, 1e-9);
  EXPECT_NEAR(scaling[0].our_parts->cycle_seconds, 0.2, 1e-9);
  EXPECT_NEAR(scaling[0].our_parts->rest_seconds, 0.5, 1e-9);
}

TEST(Comparison, DoesNotSeparateStepsOfEqualAccumulationOrOtherReplicas) {
  EXPECT_FALSE(scaling_of({in_series("a", 2, 4, 0.1, 0.1), in_series("b", 4, 4, 0.1, 0.1)})[0].our_parts);

  Row other = in_series("b", 4, 2, 0.1, 0.1);
  other.ipus *= 2;
  EXPECT_FALSE(scaling_of({in_series("a", 2, 4, 0.1, 0.1), other})[0].our_parts);

  EXPECT_THAT(scaling_of({row("a", "f", 1, 1), row("b", "f", 2, 2)}), IsEmpty());
}

TEST(Comparison, ListsRowsFamiliesSeriesAndFittedNumbers) {
  const proto::ValidationAnswer answer =
      answer_of({in_series("small", 2, 8, 0.1, 0.2), in_series("large", 8, 2, 0.1, 0.2)});

  ASSERT_EQ(answer.rows_size(), 2);
  EXPECT_EQ(answer.rows(0).name(), "small");
  EXPECT_TRUE(answer.rows(0).fits());
  EXPECT_EQ(answer.families(1).family(), "all");
  EXPECT_NEAR(answer.series(0).device_clock_parts().cycle_seconds(), 0.2, 1e-9);
  EXPECT_GE(answer.fitted_size(), 3);
  for (const proto::FittedConstant& number : answer.fitted()) {
    EXPECT_THAT(number.rows(), Not(IsEmpty()));
  }
}

}  // namespace
}  // namespace poprun::launcher::validation
