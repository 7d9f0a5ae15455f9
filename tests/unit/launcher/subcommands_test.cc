#include "launcher/options/subcommands.h"

#include <gmock/gmock.h>

#include "launcher/options/help.h"
#include "launcher/options/options.h"

namespace poprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Args = std::vector<std::string>;

Result<Options> parse(const Args& args, std::string_view config = "") {
  return parse_options(args, config);
}

std::string error_of(const Args& args, std::string_view config = "") {
  const auto options = parse(args, config);
  return options ? "no error" : options.error().message;
}

TEST(Subcommands, StandBeforeTrainCfg) {
  const auto options = parse({"check", "-n", "2", "train.cfg", "--check-steps", "5"});

  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->subcommand, Subcommand::kCheck);
  EXPECT_EQ(options->config_file, "train.cfg");
  EXPECT_EQ(options->config.check().steps(), 5U);
  EXPECT_THAT(options->config.check().ipus(), IsEmpty());
  EXPECT_EQ(options->output_dir, "poprun-emu-check");
}

TEST(Subcommands, AreNoFilesAndFilesAreNone) {
  EXPECT_EQ(parse({"./check"})->subcommand, Subcommand::kRun);
  EXPECT_EQ(parse({"./check"})->config_file, "./check");
  EXPECT_FALSE(parse({"train.cfg"})->config.has_check());
  EXPECT_EQ(parse({"train.cfg"})->output_dir, "poprun-emu-out");
  EXPECT_EQ(parse({"checks"})->config_file, "checks");
  EXPECT_THAT(error_of({"check"}), HasSubstr("usage: poprun-emu check [options] train.cfg"));
}

TEST(Subcommands, AreSuggestedWhereMisspeltOrMisplaced) {
  EXPECT_EQ(error_of({"chek", "train.cfg"}),
            "unknown subcommand 'chek'; did you mean check? usage: poprun-emu check [options] "
            "train.cfg");
  EXPECT_EQ(error_of({"train.cfg", "check"}),
            "the subcommand check comes before train.cfg; usage: poprun-emu check [options] "
            "train.cfg");
  EXPECT_THAT(error_of({"python", "train.cfg"}), StartsWith("exactly one train.cfg is needed"));
}

TEST(Subcommands, OwnTheirOptions) {
  EXPECT_EQ(error_of({"--check-steps", "5", "train.cfg"}),
            "--check-steps belongs to the subcommand check; usage: poprun-emu check [options] "
            "train.cfg");
  EXPECT_THAT(parse({"check", "train.cfg", "--check-ipus", "2,4"})->config.check().ipus(),
              ElementsAre(2, 4));
  EXPECT_THAT(parse({"check", "train.cfg", "--check-ipus", "4,2,4"})->config.check().ipus(),
              ElementsAre(4, 2));
  EXPECT_THAT(error_of({"check", "train.cfg", "--check-ipus", "1"}),
              StartsWith("--check-ipus = 1 is not allowed"));
  EXPECT_THAT(error_of({"check", "train.cfg", "--check-steps", "0"}),
              StartsWith("--check-steps = 0 is not allowed"));
}

TEST(Subcommands, HaveTheirPageOfHelp) {
  EXPECT_EQ(parse({"check", "--help"})->help, "check");
  EXPECT_THAT(help_text("check"), StartsWith("Usage: poprun-emu check [options] train.cfg\n"));
  EXPECT_THAT(help_text("check"), HasSubstr("--check-ipus LIST"));
  EXPECT_THAT(help_text("check"), HasSubstr("Ends with 0 if all runs that were compared are"));
  EXPECT_THAT(help_text("exit-codes"), HasSubstr("check: also if a run differs"));
  EXPECT_THAT(help_text(""), HasSubstr("poprun-emu check [options] train.cfg (--help check)\n"));
  EXPECT_THAT(help_text("all"), HasSubstr("  check                     Run a few steps"));
}

TEST(Check, RefusesWhatHasNoStepsToCompare) {
  EXPECT_EQ(error_of({"check", "train.cfg"}, "[model]\nmode = inference\n"),
            "check compares training steps, but model.mode = inference has none");
  EXPECT_EQ(error_of({"check", "train.cfg", "--dry-run"}),
            "--dry-run starts no replica, but check runs the job; give only one of them");
}

TEST(Check, SaysWhichKeysItOverrules) {
  const auto options =
      parse({"check", "train.cfg", "--report.dump-tensors", "fc1@1", "--overwrite"},
            "[training]\nsteps = 5\n[pipeline]\nschedule = interleaved\nrecomputation = layer\n"
            "recomputation-memory = 0.5\n");

  ASSERT_TRUE(options) << options.error().message;
  EXPECT_THAT(options->config.report().dump_tensors(), IsEmpty());
  EXPECT_THAT(options->notes,
              ElementsAre("check overrules pipeline.schedule = interleaved (runs every schedule), "
                          "pipeline.recomputation = layer (runs every recomputation), "
                          "report.dump-tensors = fc1@1 (dumps nothing), --overwrite (leaves "
                          "results of jobs alone)"));
  EXPECT_THAT(parse({"check", "train.cfg"}, "[pipeline]\nschedule = grouped\n")->notes, IsEmpty());
}

}  // namespace
}  // namespace poprun::launcher
