/// Section [pipeline] of the options: what it accepts, and what it refuses without knowing the model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/options/parse.h"

namespace poprun::launcher::pipeline_options_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Args = std::vector<std::string>;

/// Parses the options of a job with --ipus-per-replica `ipus`.
Result<Options> parse(std::uint32_t ipus, std::string_view config, Args args = {}) {
  args.insert(args.end(), {"--ipus-per-replica", std::to_string(ipus), "train.cfg"});
  return parse_options(args, config);
}

proto::PipelineConfig pipeline(std::uint32_t ipus, std::string_view keys, const Args& args = {}) {
  const auto options = parse(ipus, "[pipeline]\n" + std::string{keys}, args);
  EXPECT_TRUE(options) << options.error().message;
  return options ? options->config.pipeline() : proto::PipelineConfig{};
}

/// Returns the first line of the error's message.
std::string error_of(std::uint32_t ipus, std::string_view keys, const Args& args = {}) {
  const auto options = parse(ipus, "[pipeline]\n" + std::string{keys}, args);
  return options ? "no error" : options.error().message.substr(0, options.error().message.find('\n'));
}

std::vector<std::string> notes(std::uint32_t ipus, std::string_view config, const Args& args = {}) {
  const auto options = parse(ipus, config, args);
  EXPECT_TRUE(options) << options.error().message;
  return options ? options->notes : Args{};
}

TEST(PipelineOptions, ShowTheRecomputationThatHoldsByDefault) {
  const auto shown = [](std::uint32_t ipus, std::string_view config) { return resolved_config(*parse(ipus, config)); };
  EXPECT_THAT(shown(4, ""), HasSubstr("# recomputation = pipeline               # default\n"));
  EXPECT_THAT(shown(1, ""), HasSubstr("# recomputation = none                   # default\n"));
  EXPECT_THAT(shown(4, "[pipeline]\nschedule = sequential"),
              HasSubstr("# recomputation = none                   # default\n"));
  EXPECT_THAT(shown(4, "[pipeline]\ndevice-mapping = 0"),
              HasSubstr("# recomputation = none                   # default\n"));
  EXPECT_THAT(shown(1, "[pipeline]\nlayers-per-ipu = 1 3\ndevice-mapping = 0 0"),
              HasSubstr("# recomputation = pipeline               # default\n"));
  EXPECT_THAT(shown(4, "[pipeline]\nrecomputation = layer"),
              HasSubstr("\nrecomputation = layer                    # file\n"));
  EXPECT_THAT(shown(4, "[model]\nmode = inference"), HasSubstr("# recomputation =                        # not set\n"));
}

TEST(PipelineOptions, AreBalancedAndGroupedByDefault) {
  const proto::PipelineConfig defaults = pipeline(4, "");
  EXPECT_THAT(defaults.layers_per_ipu(), IsEmpty());
  EXPECT_THAT(defaults.split(), IsEmpty());
  EXPECT_EQ(defaults.schedule(), "grouped");
  EXPECT_EQ(defaults.recomputation(), "");
  EXPECT_EQ(defaults.recomputation_memory(), 0.5);
  EXPECT_THAT(parse(1, "")->notes, IsEmpty());
}

TEST(PipelineOptions, TakeTheLayersOfEachStage) {
  EXPECT_THAT(pipeline(4, "layers-per-ipu = 3 7 7 7").layers_per_ipu(), ElementsAre(3, 7, 7, 7));
  EXPECT_THAT(pipeline(4, "layers-per-ipu = 0,4,-1,4").layers_per_ipu(), ElementsAre(0, 4, -1, 4));
  EXPECT_THAT(pipeline(2, "", {"--pipeline.layers-per-ipu", "-1 2"}).layers_per_ipu(), ElementsAre(-1, 2));
  EXPECT_THAT(pipeline(2, "layers-per-ipu = balanced").layers_per_ipu(), IsEmpty());
}

TEST(PipelineOptions, TakeNamesAndIpusOfStages) {
  const proto::PipelineConfig split = pipeline(2, "split = conv2 fc1\ndevice-mapping = 0 1 0\nschedule = sequential");
  EXPECT_THAT(split.split(), ElementsAre("conv2", "fc1"));
  EXPECT_THAT(split.device_mapping(), ElementsAre(0, 1, 0));
  EXPECT_EQ(split.schedule(), "sequential");
}

TEST(PipelineOptions, RefuseWhatIsNoNumberOfLayers) {
  for (const char* value : {"3 seven", "-1 -1", "3 -2", "", "1.5"}) {
    EXPECT_THAT(error_of(4, "", {"--pipeline.layers-per-ipu=" + std::string{value}}), Not(HasSubstr("no error")))
        << value;
  }
  EXPECT_EQ(error_of(4, "layers-per-ipu = -1 3 -1"),
            "train.cfg:2: layers-per-ipu = -1 3 -1 is not allowed; allowed: balanced, or a number "
            "of layers for each stage, such as 3 7 7 7; one of them may be -1, for the remaining layers");
}

TEST(PipelineOptions, NeedAnIpuForEachStage) {
  EXPECT_EQ(error_of(1, "layers-per-ipu = 3 7 7 7"),
            "pipeline.layers-per-ipu = 3 7 7 7: 4 stages need 4 IPUs, but --ipus-per-replica = 1; "
            "set --ipus-per-replica 4, or let stages share IPUs with pipeline.device-mapping");
  EXPECT_EQ(error_of(2, "split = conv2 fc1"),
            "pipeline.split = conv2 fc1: 3 stages need 3 IPUs, but --ipus-per-replica = 2; set "
            "--ipus-per-replica 3, or let stages share IPUs with pipeline.device-mapping");
}

TEST(PipelineOptions, NeedMappingsThatFit) {
  EXPECT_EQ(error_of(4, "layers-per-ipu = 3 7 7 7\ndevice-mapping = 0 1 2"),
            "pipeline.device-mapping = 0 1 2 names 3 IPUs, but pipeline.layers-per-ipu = 3 7 7 7 "
            "has 4 stages; give the IPU of each stage");
  EXPECT_EQ(
      error_of(2, "layers-per-ipu = 3 7 7 7 0\ndevice-mapping = 0 1 2 3 0"),
      "pipeline.device-mapping = 0 1 2 3 0: a replica with --ipus-per-replica = 2 has no IPU 3; IPUs are numbered from "
      "0; set --ipus-per-replica 4 or use lower numbers");
  EXPECT_EQ(error_of(2, "device-mapping = 0 1 0"),
            "pipeline.device-mapping = 0 1 0 names an IPU twice, but each balanced stage needs its own; give the "
            "layers of each stage with pipeline.layers-per-ipu");
}

TEST(PipelineOptions, SayOnceWhereToCut) {
  EXPECT_EQ(error_of(3, "layers-per-ipu = 1 1 2\nsplit = conv2 fc1"),
            "pipeline.layers-per-ipu and pipeline.split cannot be combined; give only one of them");
  const Args on_command_line = {"--pipeline.split", "conv2 fc1"};
  EXPECT_THAT(pipeline(3, "layers-per-ipu = 1 1 2", on_command_line).layers_per_ipu(), IsEmpty());
  EXPECT_THAT(notes(3, "[pipeline]\nlayers-per-ipu = 1 1 2", on_command_line),
              ElementsAre("pipeline.split = conv2 fc1 replaces the file's pipeline.layers-per-ipu "
                          "= 1 1 2"));
  EXPECT_THAT(pipeline(2, "split = conv2", {"--pipeline.layers-per-ipu=balanced"}).split(), IsEmpty());
}

TEST(PipelineOptions, AreFoundByTheNamesThatPeopleTry) {
  EXPECT_EQ(error_of(4, "", {"--pipeline.stages", "4"}),
            "--pipeline.stages: unknown option; did you mean --pipeline.layers-per-ipu?");
  EXPECT_EQ(error_of(4, "stages = 4"), "train.cfg:2: unknown key stages in [pipeline]; did you mean layers-per-ipu?");
  EXPECT_EQ(error_of(4, "ipus-per-replica = 4"),
            "train.cfg:2: unknown key ipus-per-replica in [pipeline]; did you mean ipus-per-replica in [job]?");
  EXPECT_EQ(error_of(4, "layers_per_ipu = 3 1"),
            "train.cfg:2: unknown key layers_per_ipu in [pipeline]; did you mean layers-per-ipu?");
}

TEST(PipelineOptions, WithoutEffectAreNoted) {
  EXPECT_THAT(notes(1, "[pipeline]\nschedule = interleaved"),
              ElementsAre("pipeline.schedule = interleaved has no effect with a single stage"));
  EXPECT_THAT(notes(4, "[pipeline]\nschedule = interleaved\ndevice-mapping = 0"),
              ElementsAre("pipeline.schedule = interleaved has no effect with a single stage"));
  EXPECT_THAT(notes(2, "[pipeline]\nrecomputation-memory = 0.5"),
              ElementsAre("pipeline.recomputation-memory = 0.5 has no effect without "
                          "pipeline.recomputation = standard"));
  EXPECT_THAT(notes(2, "[model]\nmode = inference\n[pipeline]\nrecomputation = layer"),
              Contains("pipeline.recomputation = layer has no effect in inference"));
  EXPECT_THAT(notes(2, "[pipeline]\nschedule = interleaved"), IsEmpty());
}

TEST(PhaseOptions, AreStagesThatTakeTurns) {
  const auto options = parse(2, "[memory]\nphases = 6\nphase-ipus = 2");

  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->config.memory().phases(), 6U);
  EXPECT_EQ(options->config.memory().phase_ipus(), 2U);
  EXPECT_EQ(parse(1, "")->config.memory().phases(), 1U);
  EXPECT_THAT(resolved_config(*options), HasSubstr("# recomputation = pipeline               # default\n"));
  EXPECT_TRUE(parse(1, "[memory]\nphases = 2\n[pipeline]\nlayers-per-ipu = 1 3"));
  EXPECT_THAT(notes(1, "[memory]\nphases = 2\n[pipeline]\nschedule = interleaved"),
              Contains("pipeline.schedule = interleaved has no effect with memory.phases"));
  EXPECT_THAT(notes(1, "[memory]\nphase-ipus = 2"),
              Contains("memory.phase-ipus = 2 has no effect without memory.phases"));
}

TEST(PhaseOptions, AreRefusedWhereTheyMakeNoSense) {
  const auto refusal = [](std::uint32_t ipus, std::string_view memory, std::string_view pipeline = "") {
    const auto options = parse(ipus, "[memory]\n" + std::string{memory} + "\n[pipeline]\n" + std::string{pipeline});
    return options ? "no error" : options.error().message.substr(0, options.error().message.find('\n'));
  };
  EXPECT_EQ(refusal(4, "phases = 2\nphase-ipus = 2"),
            "memory.phases = 2: memory.phase-ipus = 2 must equal --ipus-per-replica = 4; set both to 2");
  EXPECT_THAT(refusal(2, "phases = 2"), HasSubstr("set both to 2"));
  EXPECT_THAT(refusal(1, "phases = 2\nphase-ipus = 2"), HasSubstr("set both to 1"));
  EXPECT_EQ(refusal(1, "phases = 2", "layers-per-ipu = 1 2 1"),
            "memory.phases = 2, but pipeline.layers-per-ipu = 1 2 1 defines 3 phases; remove the latter, or make the "
            "numbers of phases equal");
  EXPECT_EQ(refusal(1, "phases = 2", "device-mapping = 0 0"),
            "pipeline.device-mapping = 0 0 and memory.phases = 2 cannot be combined: phase p is on "
            "IPU p % 1; give only one of them");
}

}  // namespace
}  // namespace poprun::launcher::pipeline_options_test
