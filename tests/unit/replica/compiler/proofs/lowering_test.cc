#include "replica/compiler/proofs/lowering.h"

#include <gmock/gmock.h>

namespace poprun {
namespace {

using ::testing::HasSubstr;

/// A function that repeats one operation, and the Program that it is lowered to.
struct Lowered {
  Graph graph = *parse_graph(R"(
    tensor x : f32[4] stream
    function train
    repeat 1
    x = fill() shape=[4] value=0.0
    repeat 3
    x = fill() shape=[4] value=1.0
)");
  Program program;

  Lowered() {
    proto::Tensor& x = *program.add_tensors();
    x.set_name("x");
    x.set_bytes(16);
    proto::Function& train = *program.add_functions();
    train.set_name("train");
    train.add_steps();
    proto::Repeat& repeat = *train.add_steps()->mutable_repeat();
    repeat.set_count(3);
    repeat.add_steps();
  }
  [[nodiscard]] std::string verdict() const {
    const Status status = verify_lowering(graph, program);
    return status ? "" : status.error().message;
  }
};

TEST(Lowering, KeepsEveryStepRoundAndTensor) {
  EXPECT_EQ(Lowered().verdict(), "");
}

TEST(Lowering, ThatTruncatesARepeatIsFound) {
  Lowered job;
  job.graph.functions[0].regions[1].repeat = (std::int64_t{1} << 32) + 3;
  EXPECT_EQ(job.verdict(), "lowering: train has 3 rounds of a region in the Program, but 4294967299 in the graph");
}

TEST(Lowering, ThatDropsSomethingIsFound) {
  Lowered steps;
  steps.program.mutable_functions(0)->mutable_steps(1)->mutable_repeat()->clear_steps();
  EXPECT_THAT(steps.verdict(), HasSubstr("train has 0 repeated steps in the Program, but 1"));
  Lowered repeat;
  repeat.program.mutable_functions(0)->mutable_steps()->RemoveLast();
  EXPECT_THAT(repeat.verdict(), HasSubstr("train has 0 rounds of a region"));
  Lowered more;
  more.program.mutable_functions(0)->add_steps();
  EXPECT_THAT(more.verdict(), HasSubstr("train has 3 steps in the Program, but 2"));
  Lowered bytes;
  bytes.program.mutable_tensors(0)->set_bytes(8);
  EXPECT_THAT(bytes.verdict(), HasSubstr("x has 8 bytes in the Program, but 16"));
  Lowered function;
  function.program.clear_functions();
  EXPECT_THAT(function.verdict(), HasSubstr("the job has 0 functions"));
  Lowered tensor;
  tensor.program.clear_tensors();
  EXPECT_THAT(tensor.verdict(), HasSubstr("the job has 0 tensors"));
}

}  // namespace
}  // namespace poprun
