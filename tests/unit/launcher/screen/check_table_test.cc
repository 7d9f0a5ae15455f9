#include <gmock/gmock.h>

#include "launcher/screen/summary.h"

namespace poprun::launcher {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

proto::CheckedRun run(std::uint32_t ipus, proto::CheckedRun::Verdict verdict) {
  proto::CheckedRun run;
  run.set_ipus(ipus);
  run.set_stages(ipus);
  run.set_split(ipus == 1 ? "4" : "2 2");
  run.set_schedule("grouped");
  run.set_recomputation("none");
  run.set_peak_bytes(3 << 19);
  run.set_device_step_seconds(0.00125);
  run.set_utilisation(0.75);
  run.set_wall_step_seconds(0.25);
  run.set_verdict(verdict);
  return run;
}

TEST(CheckTable, HasALineForEachRun) {
  const std::string heading = check_heading();

  EXPECT_EQ(check_row(run(2, proto::CheckedRun::EQUAL)),
            "   2  2 2          grouped      none                             1.5 MiB     1.250 ms "
            "  75.0 "
            "%    0.250 s  equal");
  EXPECT_THAT(check_row(run(1, proto::CheckedRun::REFERENCE)), StartsWith("   1  4            -  "));
  EXPECT_EQ(heading.find("result"), check_row(run(2, proto::CheckedRun::EQUAL)).find("equal"));
}

TEST(CheckTable, SaysWhereARunKeepsItsTensors) {
  proto::CheckedRun placed = run(2, proto::CheckedRun::EQUAL);
  placed.set_placement("sharded off-chip");
  EXPECT_THAT(check_row(placed), HasSubstr("grouped      none, sharded off-chip  "));
  placed.clear_placement();
  placed.set_outlined(true);
  EXPECT_THAT(check_row(placed), HasSubstr("grouped      none, outlined  "));
}

TEST(CheckTable, SaysWhatDiffers) {
  proto::CheckedRun different = run(2, proto::CheckedRun::DIFFERENT);
  different.set_detail("step 1, replica 0: the loss");

  EXPECT_THAT(check_row(different), EndsWith("DIFFERENT: step 1, replica 0: the loss"));
}

TEST(CheckTable, LeavesOutWhatARefusedVariantHasNot) {
  proto::CheckedRun refused;
  refused.set_ipus(2);
  refused.set_verdict(proto::CheckedRun::NOT_APPLICABLE);
  refused.set_detail("no");

  EXPECT_THAT(check_row(refused), EndsWith("-          -  does not apply: no"));
}

/// Returns a report of these runs whose plan contains `missing` further runs.
proto::CheckReport report_of(const std::vector<proto::CheckedRun>& runs, int missing = 0) {
  proto::CheckReport report;
  report.mutable_plan()->set_steps(3);
  for (const proto::CheckedRun& run : runs) {
    *report.add_runs() = run;
    report.mutable_plan()->add_combinations("2 IPUs, grouped, recomputation none");
  }
  for (int k = 0; k < missing; ++k) {
    report.mutable_plan()->add_combinations(k == 0 ? "the next" : "the last");
  }
  return report;
}

const proto::CheckedRun kReference = run(1, proto::CheckedRun::REFERENCE);
const proto::CheckedRun kEqual = run(2, proto::CheckedRun::EQUAL);
const proto::CheckedRun kProven = run(2, proto::CheckedRun::PROVEN);
const proto::CheckedRun kNotApplicable = run(2, proto::CheckedRun::NOT_APPLICABLE);

proto::CheckedRun same_as(const std::string& other) {
  proto::CheckedRun same = kEqual;
  same.set_same_as(other);
  return same;
}

TEST(CheckResult, CountsWhatWasExecuted) {
  const proto::CheckReport report = report_of({kReference, kEqual, kProven});

  EXPECT_EQ(check_exit_code(report), 0);
  EXPECT_EQ(check_result(report),
            "1 of 1 run bit-identical to the reference, over 3 steps; 1 proven equal, but too "
            "large to execute");

  const proto::CheckReport different = report_of({kReference, kEqual, run(2, proto::CheckedRun::DIFFERENT)});
  EXPECT_EQ(check_exit_code(different), 70);
  EXPECT_THAT(check_result(different), HasSubstr("1 of 2 runs bit-identical"));
  EXPECT_THAT(check_result(different), HasSubstr("1 DIFFERENT, which is a bug"));
}

TEST(CheckResult, CountsRunsOfOneProgramOnce) {
  const proto::CheckReport report = report_of({kReference, kEqual, same_as("that"), same_as("it")});

  EXPECT_THAT(check_result(report),
              StartsWith("1 of 1 run bit-identical to the reference, over 3 steps; 2 more have the same Program "
                         "as one of these"));
  EXPECT_THAT(check_row(same_as("1 IPU, recomputation none")),
              EndsWith("equal: same Program as 1 IPU, recomputation none"));
}

TEST(CheckResult, NamesWhatDoesNotApply) {
  EXPECT_THAT(check_result(report_of({kReference, kEqual, kNotApplicable})),
              EndsWith("over 3 steps; 1 combination does not apply (2 IPUs, grouped, "
                       "recomputation none)"));
}

TEST(CheckResult, DoesNotPassIfNothingWasCompared) {
  const proto::CheckReport unfit = report_of({kReference, kProven});
  EXPECT_EQ(check_exit_code(unfit), 86);
  EXPECT_EQ(check_exit_code(report_of({kProven})), 86);
  EXPECT_THAT(check_result(unfit), StartsWith("nothing was compared; 1 proven equal, but too large to execute; the "
                                              "check does not pass: use a smaller data.micro-batch-size"));

  const proto::CheckReport refused = report_of({kReference, kNotApplicable, same_as("it")});
  EXPECT_EQ(check_exit_code(refused), 64);
  EXPECT_THAT(check_result(refused), HasSubstr("the check does not pass: fix what the rows report"));
}

TEST(CheckResult, SaysWhatIsMissingOfACheckThatEndedEarly) {
  EXPECT_EQ(check_result(report_of({kReference, kEqual}, 3)),
            "1 of 1 run bit-identical to the reference, over 3 steps\nthe check ended early: 3 of 5 runs are "
            "missing, from the next to the last; only a complete check writes check.json");
}

}  // namespace
}  // namespace poprun::launcher
