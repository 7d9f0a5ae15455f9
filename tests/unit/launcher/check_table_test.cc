#include "launcher/screen/check_table.h"

#include <gmock/gmock.h>

namespace poprun::launcher {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

proto::CheckedRun run(std::uint32_t ipus, proto::CheckedRun::Verdict verdict) {
  proto::CheckedRun run;
  run.set_ipus(ipus);
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
            "   2  2 2          grouped      none               1.5 MiB     1.250 ms   75.0 %    "
            "0.250 s  equal");
  EXPECT_THAT(check_row(run(1, proto::CheckedRun::REFERENCE)),
              StartsWith("   1  4            -  "));
  EXPECT_EQ(heading.find("result"), check_row(run(2, proto::CheckedRun::EQUAL)).find("equal"));
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

TEST(CheckResult, CountsWhatWasExecuted) {
  proto::CheckReport report;
  report.mutable_plan()->set_steps(3);
  *report.add_runs() = run(1, proto::CheckedRun::REFERENCE);
  *report.add_runs() = run(2, proto::CheckedRun::EQUAL);
  *report.add_runs() = run(2, proto::CheckedRun::PROVEN);

  EXPECT_EQ(check_exit_code(report), 0);
  EXPECT_THAT(check_result(report, "out"),
              StartsWith("1 of 1 run equal to the reference in every bit, over 3 steps; 1 proven"));

  *report.add_runs() = run(2, proto::CheckedRun::DIFFERENT);
  EXPECT_EQ(check_exit_code(report), 70);
  EXPECT_THAT(check_result(report, "out"), HasSubstr("1 of 2 runs equal"));
  EXPECT_THAT(check_result(report, "out"), HasSubstr("1 DIFFERENT, which is a bug"));
}

TEST(CheckResult, OfNothingThatFitsIsThatOfAJobThatDoesNot) {
  proto::CheckReport report;
  *report.add_runs() = run(1, proto::CheckedRun::PROVEN);

  EXPECT_EQ(check_exit_code(report), 86);
}

}  // namespace
}  // namespace poprun::launcher
