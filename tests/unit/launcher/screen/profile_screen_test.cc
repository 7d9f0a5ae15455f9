/// The screens of `poprun-emu profile`: bars, curves, tables, and their widths.

#include "launcher/screen/profile_screen.h"

#include <algorithm>
#include <sstream>

#include <gmock/gmock.h>

namespace poprun::launcher::profile_screen_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(MemoryBar, ShowsWhatIsAtTheMiddleOfEachColumn) {
  EXPECT_EQ(memory_bar({{'T', 40}, {'t', 20}}, 100, 11), "TTTTtt....|");
  EXPECT_EQ(memory_bar({}, 100, 6), ".....|");
  EXPECT_EQ(memory_bar({{'T', 100}}, 100, 11), "TTTTTTTTTT|");
  EXPECT_EQ(memory_bar({{'T', 4}, {'t', 96}}, 100, 11), "tttttttttt|") << "too small to be seen";
}

TEST(MemoryBar, GoesBeyondTheLimit) {
  EXPECT_EQ(memory_bar({{'T', 100}, {'w', 100}}, 150, 9), "TTTTww|ww");
  EXPECT_EQ(memory_bar({{'T', 50}}, 100, 11, 200), "TT...|") << "another bar is longer";
}

proto::Liveness liveness(std::uint64_t always, const std::vector<std::uint64_t>& not_always) {
  proto::Liveness liveness;
  liveness.set_always_live(always);
  liveness.mutable_not_always_live()->Add(not_always.begin(), not_always.end());
  liveness.set_worst_step(static_cast<std::uint32_t>(std::ranges::max_element(not_always) - not_always.begin()));
  liveness.add_peaks()->set_step(liveness.worst_step());
  return liveness;
}

/// Ten columns.
constexpr std::size_t kWidth = 23;

TEST(Wrapped, BreaksAtBlanksAndCutsWhatIsLeft) {
  EXPECT_EQ(wrapped("aa bb cc dd", 2, 8, 3), "  aa bb\n  cc dd\n");
  EXPECT_EQ(wrapped("aa bb cc dd", 2, 8, 1), "  aa b..\n");
  EXPECT_EQ(wrapped("aaaaaaaaaa", 2, 8, 3), "  aaaa..\n");
  EXPECT_EQ(wrapped("", 2, 8, 3), "");
}

TEST(LivenessCurve, StacksWhatIsNotAlwaysLiveOnWhatIs) {
  EXPECT_EQ(liveness_curve(liveness(20, {0, 10, 20, 60, 20}), {.width = kWidth, .rows = 4, .limit = 80, .marks = 1},
                           {{0, "a"}, {1, "a name without room"}, {2, "train"}}),
            "    0.1 KiB |------1---\n"
            "            |      ##\n"
            "            |      ##\n"
            "            |  ::######\n"
            "            |==========\n"
            "          0 +----------\n"
            "             a   train\n");
}

TEST(LivenessCurve, ShowsWhatIsBeyondTheLimit) {
  EXPECT_EQ(liveness_curve(liveness(0, {10, 40, 10, 10, 10}), {.width = kWidth, .rows = 4, .limit = 25}, {}),
            "    0.0 KiB |\n"
            "            |  !!\n"
            "    0.0 KiB |--!!------\n"
            "            |  ##\n"
            "            |##########\n"
            "          0 +----------\n"
            "\n");
}

TEST(LivenessCurve, HasTheScaleOfThePeakWhereTheLimitIsFarAbove) {
  EXPECT_EQ(top_of(30, 100), 30U);
  EXPECT_EQ(top_of(40, 100), 100U);
  EXPECT_EQ(top_of(140, 100), 140U);
}

TEST(LivenessCurve, ShowsTheMostOfManyStepsInAColumn) {
  std::vector<std::uint64_t> steps(1000, 0);
  steps[555] = 60;
  const std::string curve =
      liveness_curve(liveness(0, steps), {.width = kWidth, .rows = 2, .limit = 60, .marks = 1}, {});
  EXPECT_THAT(curve, HasSubstr("|-----1----\n            |     #\n            |     #\n"));
}

/// Returns a profile of `ipus` IPUs of 4 tiles; the last IPU needs `peak` bytes on its fullest tile.
proto::Profile profile(int ipus, std::uint64_t peak) {
  constexpr std::uint64_t kTile = 638'976;
  proto::Profile profile;
  profile.mutable_config()->mutable_model()->set_name("gpt2");
  profile.mutable_config()->mutable_device()->set_ipu("mk2");
  profile.mutable_config()->mutable_topology()->set_ipus_per_replica(static_cast<std::uint32_t>(ipus));
  profile.mutable_device()->set_step_seconds(0.01);
  proto::Report& report = *profile.mutable_report();
  report.set_steps(40);
  report.add_categories("tensors");
  report.add_categories("temporaries");
  report.set_step_function("train");
  proto::FunctionTree& train = *report.add_functions();
  train.set_name("train");
  train.add_nodes()->set_step(3);
  for (int i = 0; i < ipus; ++i) {
    const std::uint64_t most = i + 1 == ipus ? peak : 100'000;
    proto::IpuReport& ipu = *report.add_ipus();
    ipu.set_capacity(4 * kTile);
    ipu.set_bytes_per_tile(kTile);
    ipu.set_peak(4 * most);
    std::vector<std::uint64_t> steps(40, 0);
    steps[9] = 2 * most;
    *ipu.mutable_liveness() = liveness(2 * most, steps);
    ipu.mutable_liveness()->mutable_peaks(0)->set_operation("conv2d 'conv1'");
    ipu.mutable_liveness()->mutable_peaks(0)->set_attributes("stride=[1,1]");
    ipu.mutable_liveness()->mutable_peaks(0)->set_plan("AMP " + std::string(300, 'x'));
    for (proto::CategoryBytes* bytes : {ipu.mutable_at_peak(), ipu.mutable_fullest_tile()->mutable_at_peak()}) {
      bytes->add_always_live(2 * most);
      bytes->add_always_live(0);
      bytes->add_not_always_live(0);
      bytes->add_not_always_live(2 * most);
    }
    ipu.mutable_fullest_tile()->set_peak(most);
    ipu.mutable_balance()->set_max(most);
    proto::TileClassReport& one = *ipu.add_classes();
    one.add_tiles()->set_last(3);
    one.set_overflowed(most > kTile ? most - kTile : 0);
    proto::Variable& variable = *report.add_variables();
    variable.set_name("a.very.long.name." + std::string(200, 'n'));
    variable.set_ipu(static_cast<std::uint32_t>(i));
    variable.set_bytes(2 * most);
    variable.set_always_live(true);
    variable.add_lives()->set_last(39);
    variable.set_tiles(4);
  }
  proto::OperatorRow& op = *report.add_operators();
  op.set_operation("conv2d");
  op.set_name("conv1");
  op.set_host_function("train");
  op.set_calls(3);
  op.mutable_cost()->set_compute_cycles(peak);
  return profile;
}

std::size_t widest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t widest = 0;
  for (std::string line; std::getline(lines, line);) {
    widest = std::max(widest, line.size());
  }
  return widest;
}

TEST(ProfileScreen, KeepsWithinItsWidth) {
  for (const std::size_t width : {80U, 139U, 200U}) {
    EXPECT_LE(widest_line(profile_screen(profile(3, 700'000), {.width = width})), width);
    EXPECT_LE(widest_line(profile_comparison({"a", profile(3, 700'000)}, {"b", profile(2, 600'000)}, {.width = width})),
              width);
  }
}

TEST(ProfileScreen, SaysWhetherTheJobFits) {
  EXPECT_THAT(profile_screen(profile(1, 600'000), {}), HasSubstr("# profile of gpt2 on 1 IPU of mk2: fits\n"));
  EXPECT_THAT(profile_screen(profile(1, 700'000), {}), HasSubstr(": does not fit, 4 tiles over the limit\n"));
}

TEST(ProfileScreen, HasTheNotesOfTheCompilerInFull) {
  proto::Profile noted = profile(1, 600'000);
  noted.add_notes()->set_text(
      "PL:POPLIN [W] Warning: convolution planner unable to meet memory target. "
      "Optimising for minimum memory. (30 products)");
  const std::string screen = profile_screen(noted, {.width = 80});
  EXPECT_THAT(screen, HasSubstr("\nnote        PL:POPLIN [W] Warning: convolution planner unable to meet "
                                "memory\n            target. Optimising for minimum memory. (30 "
                                "products)\n"));
}

TEST(ProfileScreen, ShowsTheOperatorOfAPeakWithItsOptionsAndPlan) {
  const std::string screen = profile_screen(profile(1, 600'000), {});
  EXPECT_THAT(screen, HasSubstr("step 9, : conv2d 'conv1'\n       options  stride=[1,1]\n"
                                "          plan  AMP\n                xxx"));
  EXPECT_THAT(screen, HasSubstr("always live"));
}

TEST(ProfileScreen, ShowsOfManyIpusTheFullest) {
  const std::string few = profile_screen(profile(12, 600'000), {});
  EXPECT_THAT(few, HasSubstr("# liveness of IPU 11, over 40 steps\n"));
  EXPECT_THAT(few, Not(HasSubstr("# liveness of IPU 0,")));
  EXPECT_THAT(few, HasSubstr("9 IPUs, which -v shows"));
  const std::string all = profile_screen(profile(12, 600'000), {.everything = true});
  EXPECT_THAT(all, HasSubstr("# liveness of IPU 0,"));
}

TEST(ProfileComparison, ShowsDifferencesOfBytesAndCycles) {
  const std::string text = profile_comparison({"a.pb", profile(1, 700'000)}, {"b.pb", profile(1, 600'000)}, {});
  EXPECT_THAT(text, HasSubstr("# source a.pb: gpt2 on 1 IPU of mk2\n# target b.pb: gpt2"));
  EXPECT_THAT(text, HasSubstr("       max                       700,000 B       600,000 B      "
                              "-100,000 B\n"));
  EXPECT_THAT(text, HasSubstr("        700,000        600,000       -100,000  conv2d 'conv1'\n"));
}

TEST(ProfileComparison, SaysWhereNothingDiffers) {
  const proto::Profile one = profile(1, 600'000);
  EXPECT_THAT(profile_comparison({"a", one}, {"b", one}, {}), HasSubstr("in a step, by difference\n  no difference\n"));
}

}  // namespace
}  // namespace poprun::launcher::profile_screen_test
