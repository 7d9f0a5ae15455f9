#include "launcher/options/environment.h"

#include <set>

#include <gmock/gmock.h>

#include "launcher/options/parse.h"

namespace poprun::launcher::environment_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Args = std::vector<std::string>;

Result<Options> parse(Args args, const Environment& environment, std::string_view config = "") {
  args.emplace_back("train.cfg");
  return parse_options(args, config, environment);
}

TEST(Environment, OverridesTheFileAndIsOverridden) {
  const std::string file = "[training]\nsteps = 5\nseed = 6\n";
  const Environment environment = {"POPRUN_EMU_TRAINING_STEPS=7", "POPRUN_EMU_OUTPUT_DIR=x", "HOME=/root"};

  const auto options = parse({}, environment, file);
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->config.training().steps(), 7U);
  EXPECT_EQ(options->config.training().seed(), 6U);
  EXPECT_EQ(options->output.dir, "x");
  EXPECT_THAT(options->notes, IsEmpty());
  EXPECT_THAT(resolved_config(*options), HasSubstr("# environment\n"));
  EXPECT_EQ(parse({"--training.steps", "8"}, environment, file)->config.training().steps(), 8U);
  EXPECT_EQ(parse({}, {"POPRUN_EMU_MODEL=mlp"})->config.model().name(), "mlp");
  EXPECT_TRUE(parse({}, {"POPRUN_EMU_DRY_RUN=true"})->dry_run);
  EXPECT_FALSE(parse({}, {"POPRUN_EMU_DRY_RUN="})->dry_run);
}

TEST(Environment, OfListsIsReplacedByTheCommandLine) {
  const Environment environment = {"POPRUN_EMU_HOST=node0,node1"};
  EXPECT_THAT(parse({}, environment)->hosts.lists, ElementsAre("node0,node1"));
  EXPECT_THAT(parse({"--host", "node2"}, environment)->hosts.lists, ElementsAre("node2"));
}

TEST(Environment, WithAWrongValueIsAnError) {
  const auto options = parse({}, {"POPRUN_EMU_DEVICE_IPU=mk3"});
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().message,
            "POPRUN_EMU_DEVICE_IPU = mk3 is not allowed; allowed: bow, mk1, mk2; did you mean mk2?");
}

TEST(Environment, WithAnUnknownNameGetsTheNearest) {
  EXPECT_THAT(parse({}, {"POPRUN_EMU_OUTPUT_DRI=x"})->notes,
              ElementsAre("the environment variable POPRUN_EMU_OUTPUT_DRI sets no option; did you mean "
                          "POPRUN_EMU_OUTPUT_DIR?"));
  EXPECT_THAT(parse({}, {"POPRUN_EMU_QUANTUM_TUNNEL=x"})->notes,
              ElementsAre("the environment variable POPRUN_EMU_QUANTUM_TUNNEL sets no option; see poprun-emu help "
                          "environment"));
}

TEST(Environment, OfOtherProgramsIsIgnored) {
  const auto options = parse({}, {"POPRUN_EMU_TOKEN=secret", "POPRUN_EMU_BIN=/bin", "POPRUN_EMU_RANDOM_JOBS=3",
                                  "POPRUN_EMU_HOSTIO_SERVICE_HOST=10.0.0.1", "POPRUN_EMU_METRICS_PORT=tcp://10.0.0.1:1",
                                  "POPRUN_EMU_VERSION=1.0"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_THAT(options->notes, IsEmpty());
  EXPECT_EQ(options->metrics.port, 0U);
}

TEST(Environment, OfOtherSubcommandsIsIgnored) {
  EXPECT_TRUE(parse({}, {"POPRUN_EMU_CHECK_STEPS=5"}));
  EXPECT_EQ(parse({"check"}, {"POPRUN_EMU_CHECK_STEPS=5"})->config.check().steps(), 5U);
}

TEST(Environment, HasOneNamePerOption) {
  std::set<std::string> names;
  for (const OptionRow& row : option_table()) {
    EXPECT_TRUE(names.insert(variable_of(row)).second) << row.name;
  }
  EXPECT_TRUE(names.contains("POPRUN_EMU_MEMORY_IN_PLACE"));
}

TEST(ColourChoice, IsKnownEvenIfTheCommandLineIsWrong) {
  EXPECT_EQ(colour_choice(Args{"--nonsense", "train.cfg"}, {}), "auto");
  EXPECT_EQ(colour_choice(Args{"--nonsense", "--color", "never"}, {}), "never");
  EXPECT_EQ(colour_choice(Args{"--color=always"}, {"POPRUN_EMU_COLOR=never"}), "always");
  EXPECT_EQ(colour_choice(Args{}, {"POPRUN_EMU_COLOR=never"}), "never");
}

}  // namespace
}  // namespace poprun::launcher::environment_test
