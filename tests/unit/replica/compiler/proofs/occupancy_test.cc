/// Checks Programs whose plan keeps every value as long as it is needed, and finds damage to the plan or the Program.

#include "replica/compiler/proofs/occupancy.h"

#include <algorithm>
#include <functional>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/compile.h"
#include "tests/unit/replica/two_stages.h"

namespace poprun::occupancy_test {
namespace {

using ::testing::HasSubstr;

Program compiled(const std::string& text) {
  const auto graph = parse_graph(text);
  EXPECT_TRUE(graph) << graph.error().message;
  CompileOptions options;
  options.in_place = true;
  options.device = *find_device("mk2");
  options.ipus_per_replica = 2;
  auto program = plan_graph(*graph, options);
  EXPECT_TRUE(program) << program.error().message;
  return *program;
}

proto::Tensor& tensor(Program& program, std::string_view name) {
  auto& all = *program.mutable_tensors();
  return *std::ranges::find_if(all, [name](const auto& t) { return t.name() == name; });
}

proto::Function& function(Program& program, std::string_view name) {
  auto& all = *program.mutable_functions();
  return *std::ranges::find_if(all, [name](const auto& f) { return f.name() == name; });
}

/// Returns the step of the function `in` that executes the operation `name`.
proto::Step& step(Program& program, std::string_view in, std::string_view name) {
  auto& all = *function(program, in).mutable_steps();
  return *std::ranges::find_if(all, [name](const auto& s) { return s.execute().name() == name; });
}

std::string verdict(const Program& program) {
  const Status status = verify_memory(program);
  return status ? "" : status.error().message;
}

std::string verdict_on(const std::function<void(Program&)>& damage) {
  Program program = compiled(testing::pipelined(7));
  damage(program);
  return verdict(program);
}

/// Moves a tensor within its IPU, and updates the planned peaks.
void move(Program& program, std::string_view name, std::uint64_t offset) {
  tensor(program, name).mutable_placement()->set_offset(offset);
  for (int ipu = 0; ipu < program.memory_size(); ++ipu) {
    std::uint64_t peak = 0;
    for (const proto::Tensor& t : program.tensors()) {
      if (t.lives_size() > 0 && t.placement().ipu() == static_cast<std::uint32_t>(ipu)) {
        peak = std::max(peak, t.placement().offset() + t.bytes());
      }
    }
    program.mutable_memory(ipu)->set_images_peak(peak);
  }
}

TEST(Occupancy, APlanOfAPipelineKeepsEveryValue) {
  for (const int micro_batches : {3, 4, 7, 1000}) {
    EXPECT_EQ(verdict(compiled(testing::pipelined(micro_batches))), "");
    EXPECT_EQ(verdict(compiled(testing::plain(micro_batches))), "");
  }
}

TEST(Occupancy, ATensorThatAnotherOverwritesIsFound) {
  EXPECT_THAT(verdict_on([](Program& program) { move(program, "d", tensor(program, "h").placement().offset()); }),
              HasSubstr("reads 'h', whose bytes 'd' overwrote in step "));
  EXPECT_THAT(verdict_on([](Program& program) {
                move(program, "h.stash", tensor(program, "x.stash").placement().offset() + 16);
              }),
              HasSubstr("reads 'x.stash', whose bytes 'h.stash' overwrote in step "));
}

TEST(Occupancy, AStepOutsideATensorsLifeIsFound) {
  EXPECT_THAT(verdict_on([](Program& program) { tensor(program, "gr@0").mutable_lives()->RemoveLast(); }),
              HasSubstr("(relu_gradient 'gd') uses 'gr@0' outside its planned live range"));
}

TEST(Occupancy, TensorsOfTwoIpusInOneOperationAreFound) {
  const auto on_ipu = [](std::uint32_t ipu) {
    return verdict_on([ipu](Program& program) { tensor(program, "h").mutable_placement()->set_ipu(ipu); });
  };
  EXPECT_THAT(on_ipu(1), HasSubstr("(mul 'h') uses 'x' on IPU 0 and 'h' on IPU 1"));
  EXPECT_THAT(on_ipu(7), HasSubstr("'h' is on IPU 7, but the replica has 2 IPUs"));
}

TEST(Occupancy, APeakThatIsNotReachedIsFound) {
  EXPECT_THAT(verdict_on([](Program& program) {
                program.mutable_memory(1)->set_images_peak(program.memory(1).images_peak() + 1);
              }),
              HasSubstr("the tensors of the steps on IPU 1 end at "));
}

TEST(Occupancy, ATensorThatIsReleasedTooEarlyIsFound) {
  EXPECT_THAT(verdict_on([](Program& program) {
                proto::Step& first = step(program, "forward.0", "h");
                first.add_releases(first.execute().outputs(0));
              }),
              HasSubstr("(mul 'h') has released"));
}

/// Returns a chain of operators that run in place: x, a, b and c have the same address.
Program chain() {
  return compiled(R"(
      tensor x : f32[4] stream
      tensor a : f32[4] activation
      tensor b : f32[4] activation
      tensor c : f32[4] activation
      function train
      repeat 1
      x = stream_in() stream="s"
      a = relu(x)
      b = relu(a)
      c = relu(b)
  )");
}

TEST(Occupancy, AReleaseOfBytesThatAreInUseIsFound) {
  Program program = chain();
  ASSERT_EQ(tensor(program, "x").placement().offset(), tensor(program, "b").placement().offset());
  program.mutable_functions(0)->mutable_steps(2)->add_releases(0);

  EXPECT_EQ(verdict(program), "memory: step 3 (relu 'c') reads 'b', which step 2 (relu 'b') has released");
}

TEST(Occupancy, AnOperandThatIsOverwrittenTooEarlyIsFound) {
  Program program = chain();
  program.mutable_functions(0)->mutable_steps(3)->mutable_execute()->set_inputs(0, 1);
  auto& lives = *program.mutable_tensors(1)->mutable_lives(0);
  lives.set_last(3);

  EXPECT_EQ(verdict(program), "memory: step 3 (relu 'c') reads 'a', whose bytes 'b' overwrote in step 2 (relu 'b')");
}

TEST(Occupancy, AnOperatorThatMayNotRunInPlaceIsFound) {
  Program program = chain();
  program.mutable_functions(0)->mutable_steps(1)->mutable_execute()->set_operation("layer_norm");
  EXPECT_EQ(verdict(program), "memory: step 1 (layer_norm 'a') writes 'a' over its input 'x'");

  Program shifted = compiled(R"(
      tensor x : f32[64] stream
      tensor a : f32[64] activation
      function train
      repeat 1
      x = stream_in() stream="s"
      a = relu(x)
  )");
  move(shifted, "a", 64);
  EXPECT_EQ(verdict(shifted), "memory: step 1 (relu 'a') writes 'a' over its input 'x'")
      << "in place is at the same address";
}

/// Returns a Program in which v is a view of x's bytes from step 1 on, and a then reuses v's bytes.
Program view() {
  return compiled(R"(
      tensor x : f32[4,16] stream
      tensor v : f32[2,16] activation
      tensor a : f32[2,16] activation
      tensor y : f32[4,16] activation
      function train
      repeat 1
      x = stream_in() stream="s"
      v = slice(x) axis=0 begin=2 count=2
      y = gelu(x)
      a = relu(v)
      stream_out(a, y) stream="o"
  )");
}

TEST(Occupancy, AViewHoldsItsBytesTogetherWithWhatItShows) {
  Program program = view();
  const std::uint64_t x = tensor(program, "x").placement().offset();
  ASSERT_EQ(tensor(program, "v").placement().offset(), x + 128);
  EXPECT_EQ(verdict(program), "");

  program.mutable_functions(0)->mutable_steps(2)->add_releases(0);
  EXPECT_EQ(verdict(program), "memory: step 3 (relu 'a') reads 'v', which step 2 (gelu 'y') has released");
}

TEST(Occupancy, AViewAtTheWrongPlaceIsFound) {
  Program program = view();
  move(program, "v", tensor(program, "x").placement().offset() + 64);

  EXPECT_EQ(verdict(program), "memory: step 1 (slice 'v') writes 'v' over its input 'x'");
}

TEST(Occupancy, AnEntryThatIsReadBeforeItIsWrittenIsFound) {
  EXPECT_THAT(verdict_on([](Program& program) {
                for (proto::Step& s : *function(program, "train").mutable_steps()) {
                  if (s.call().function() == "forward.0" && s.call().micro_batch() == 0) {
                    s.mutable_call()->set_micro_batch(1);
                  }
                }
              }),
              HasSubstr("(restore) reads entry 0 of 'x.stash', which nothing has written"));
}

TEST(Occupancy, WhatIsNotAlwaysLiveDoesNotOutlastItsFunction) {
  EXPECT_THAT(verdict_on([](Program& program) { tensor(program, "w").set_always_live(false); }),
              HasSubstr("reads 'w', which nothing has written in this function"));
}

}  // namespace
}  // namespace poprun::occupancy_test
