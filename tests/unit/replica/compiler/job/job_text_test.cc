#include "replica/compiler/job/job_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun::job_text_test {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kGraph =
    "graph\n"
    "layer fc\n"
    "tensor w : f32[2] parameter resides=w.remote:3\n"
    "tensor w.remote : f32[4,2] parameter streaming\n"
    "tensor learning-rate : f32[] stream\n"
    "tensor step : f32[] stream\n"
    "tensor scale : f32[] stream\n"
    "tensor mean, of labels : f32[] stream\n"
    "tensor train.metrics : f32[3,3] metric\n"
    "tensor loss : f32[] activation\n"
    "tensor w.gradient : f32[2] gradient\n"
    "function load\n"
    "repeat 1\n"
    "function train\n"
    "repeat 1\n"
    "repeat 4\n"
    "@fc:1:backward w.gradient = copy(w)\n"
    "repeat 1\n"
    "function evaluate\n"
    "repeat 1\n";

TEST(JobText, PrintsEverythingInAJob) {
  const std::string text =
      "stages ipus=[0,2]\n"
      "reserved name=\"conv 1\"\n"
      "training begin=\"train:0\" factor=\"scale\" loss=\"loss\" loss_scale=\"scale\" metrics=\"train.metrics\" "
      "micro_batch=\"train:1\" rate=\"learning-rate\" step=\"step\" update=\"train:2\"\n"
      "mean-labels labels=\"labels\" tensor=\"mean, of labels\"\n"
      "loss-term count=\"step\" labels=\"labels\" loss=\"loss\"\n"
      "phase place=\"train:1\"\n"
      "gradient parameter=\"w\" tensor=\"w.gradient\"\n"
      "evaluation place=\"evaluate:0\"\n"
      "part backward=1 function=\"load\" ipu=2 recomputes=0 stage=1\n"
      "balancing capacity=1024 in_flight=[2,1] recomputes=[0,1]\n"
      "balanced-layer activations=3 bytes=2 cycles=1\n"
      "note code=\"a.b\" text=\"w: \\\"x\\\" # no comment\"\n"
      "fact name=\"pass\" value=\"outlining\"\n"
      "fact name=\"bytes\" value=7\n"
      "note code=\"c\" text=\"\"\n"
      "location text=\"w: off-chip (memory.weights)\"\n" +
      std::string{kGraph};

  const Result<Job> job = parse_job(text);

  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(to_text(*job), text);
  EXPECT_EQ(job->graph.tensors()[0].residence, (Residence{job->graph.find("w.remote"), 3}));
  EXPECT_TRUE(job->graph.is_reserved("conv 1"));
  EXPECT_EQ(job->training->update.region, 2U);
  EXPECT_TRUE(job->parts.at("load").is_backward);
  EXPECT_EQ(job->notes[0].facts, (std::vector<Fact>{{"pass", std::string{"outlining"}}, {"bytes", 7}}));
}

TEST(JobText, NeedsOnlyAGraph) {
  const Result<Job> job = parse_job("# by hand\n\ngraph\n");

  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(to_text(*job), "stages ipus=[0]\ngraph\n");
  EXPECT_FALSE(job->training);
}

/// Returns the error of a job with this line before its graph, which begins at line 10 of a file.
std::string error_of(const std::string& line, std::string_view graph = kGraph) {
  const Result<Job> job = parse_job("stages ipus=[0,1]\n" + line + "\n" + std::string{graph}, 10);
  return job ? "" : job.error().message;
}

TEST(JobText, NamesTheLineAtFault) {
  EXPECT_EQ(error_of("evaluation place=\"train:3\""), "line 11: evaluation place: there is no region 'train:3'");
  EXPECT_EQ(error_of("evaluation"), "line 11: evaluation needs place=, followed by text in quotes");
  EXPECT_EQ(error_of("evaluation place=3"), "line 11: evaluation needs place=, followed by text in quotes");
  EXPECT_EQ(error_of("evaluation place=\"train:0\" x=1"), "line 11: evaluation has an unknown attribute x=");
  EXPECT_EQ(error_of("evaluation place"), "line 11: 'place' is not an attribute such as pad=[1,1]");
  EXPECT_EQ(error_of("stages ipus=[-1]"), "line 11: stages ipus: -1 is not a number from 0 to 4294967295");
  EXPECT_EQ(error_of("heroes"), "line 11: a line cannot begin with 'heroes' here; job_text.h lists the valid lines");
  EXPECT_THAT(error_of("gradient parameter=\"w\" tensor=\"w.gradient\""), HasSubstr("cannot begin with 'gradient'"))
      << "without training";
  EXPECT_EQ(error_of("", "graph\nlayer a\nheroes\n"), "line 14: expected: OUTPUTS = KIND(INPUTS) ATTRIBUTES");
  EXPECT_EQ(error_of("", ""), "line 12: the job ends without a line 'graph'");
  EXPECT_EQ(error_of("stages ipus=[0]"),
            "function train: copy belongs to stage 1, but the line 'stages' lists IPUs for only 1 stage");
  EXPECT_EQ(error_of("part backward=0 function=\"load\" ipu=0 recomputes=0 stage=2"),
            "function load: the part belongs to stage 2, but the line 'stages' lists IPUs for only 2 stages");
}

}  // namespace
}  // namespace poprun::job_text_test
