/// The pass "initial-weights", and its verifier.

#include "tests/unit/replica/compiler/pass_text.h"

namespace poprun::initial_weights_test {
namespace {

using namespace pass_text;
using ::testing::HasSubstr;

TEST(InitialWeights, ComeFromTheHostBeforeAnythingElse) {
  const auto from_host = options_with([](CompileOptions& o) { o.initial_weights_from_host = true; });
  const Job before = job_of(kBackward);
  Job job = before;
  ASSERT_TRUE(pass_of("initial-weights").run(from_host, job));
  EXPECT_TRUE(pass_of("initial-weights").verify(from_host, before, job));
  EXPECT_THAT(to_text(job.graph), HasSubstr("function load\nrepeat 1\n"
                                            "running, v, w = stream_in() stream=\"weights\"\n"
                                            "function train\n"));
}

TEST(InitialWeights, LeaveThoseThatAreInitialisedHere) {
  const auto in_part = options_with([](CompileOptions& o) {
    o.initial_weights_from_host = true;
    o.initialised_here = {"v"};
  });
  const Job before = job_of(kBackward);
  Job job = before;
  ASSERT_TRUE(pass_of("initial-weights").run(in_part, job));
  EXPECT_TRUE(pass_of("initial-weights").verify(in_part, before, job));
  EXPECT_THAT(to_text(job.graph), HasSubstr("running, w = stream_in() stream=\"weights\"\nv = "));
  EXPECT_FALSE(pass_of("initial-weights")
                   .verify(options_with([](CompileOptions& o) { o.initial_weights_from_host = true; }), before, job));
}

TEST(InitialWeights, ThatMayBeOffTheChipComeOneByOne) {
  const auto off_chip = options_with([](CompileOptions& o) {
    o.initial_weights_from_host = true;
    o.locations.weights = Storage::kOffChip;
  });
  const Job before = job_of(kBackward);
  Job job = before;
  ASSERT_TRUE(pass_of("initial-weights").run(off_chip, job));
  EXPECT_TRUE(pass_of("initial-weights").verify(off_chip, before, job));
  EXPECT_THAT(to_text(job.graph), HasSubstr("function load\nrepeat 1\n"
                                            "running = stream_in() fields=[0] stream=\"weights\"\n"
                                            "v = stream_in() fields=[1] stream=\"weights\"\n"
                                            "w = stream_in() fields=[2] stream=\"weights\"\n"
                                            "function train\n"));
  std::swap(operations(job, job.graph.load())[0], operations(job, job.graph.load())[1]);
  EXPECT_FALSE(pass_of("initial-weights").verify(off_chip, before, job));
}

TEST(InitialWeights, MustSetUpEachOnce) {
  const auto from_host = options_with([](CompileOptions& o) { o.initial_weights_from_host = true; });
  EXPECT_THAT(verdict_on("initial-weights", kBackward, from_host,
                         [](Job& job) { operations(job, job.graph.load())[0].outputs.pop_back(); }),
              HasSubstr("'w' does not come from the host"));
}

TEST(InitialWeights, AreNotNeededByAModelWithoutWeights) {
  const auto from_host = options_with([](CompileOptions& o) {
    o.initial_weights_from_host = true;
    o.inference = true;
  });
  const Job before = job_of(
      "tensor x : f32[2] stream\nfunction load\nrepeat 1\nfunction evaluate\nrepeat 1\n"
      "x = stream_in() stream=\"test\"\n");
  Job job = before;
  EXPECT_TRUE(pass_of("initial-weights").run(from_host, job));
  EXPECT_TRUE(pass_of("initial-weights").verify(from_host, before, job));
  EXPECT_EQ(to_text(job.graph), to_text(before.graph));
}

}  // namespace
}  // namespace poprun::initial_weights_test
