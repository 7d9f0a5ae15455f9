#include "replica/compiler/lives/liveness.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poprun {
namespace {

using ::testing::ElementsAre;

/// Returns the live ranges of a graph, given as text: per tensor a line `name [first, last]...` or `name always`.
std::string liveness_of(std::string_view text) {
  const auto graph = parse_graph(text);
  if (!graph) {
    return graph.error().message;
  }
  const Liveness liveness = compute_liveness(*graph);
  std::string lines;
  for (std::size_t t = 0; t < graph->tensors().size(); ++t) {
    const Life& life = liveness.lives[t];
    lines += graph->tensors()[t].name;
    for (const Span& span : life.spans) {
      lines += life.always_live ? " always" : fmt::format(" [{}, {}]", span.first, span.last);
    }
    lines += life.spans.empty() ? " unused\n" : "\n";
  }
  return lines;
}

TEST(Liveness, AGradientKeepsItsActivationAlive) {
  EXPECT_EQ(liveness_of(R"(
      tensor x : f32[4] stream
      tensor h : f32[4] activation
      tensor y : f32[4] activation
      tensor g : f32[4] activation
      function train
      repeat 1
      x = stream_in() stream="s"      # step 0
      h = relu(x)                     # step 1
      y = relu(h)                     # step 2
      g = relu_gradient(h, y)         # step 3: backward reads h again
  )"),
            "x [0, 1]\nh [1, 3]\ny [2, 3]\ng [3, 3]\n");
}

TEST(Liveness, AVariableThatLoadSetsUpIsAlwaysLive) {
  EXPECT_EQ(liveness_of(R"(
      tensor w : f32[4] parameter
      tensor y : f32[4] activation
      function load
      repeat 1
      w = initialise() constant=0.0
      function train
      repeat 1
      y = relu(w)
  )"),
            "w always\ny [1, 1]\n");
}

TEST(Liveness, AnAccumulatorLivesThroughTheRepeat) {
  EXPECT_EQ(liveness_of(R"(
      tensor sum : f32[4] gradient
      tensor x : f32[4] stream
      tensor w : f32[4] parameter
      function load
      repeat 1
      w = initialise() constant=0.0   # step 0
      function train
      repeat 1
      sum = fill() value=0.0          # step 1
      repeat 4
      x = stream_in() stream="s"      # step 2
      sum = accumulate(sum, x)        # step 3, and the repeat is step 4
      repeat 1
      w = sgd(w, sum)                 # step 5
  )"),
            "sum [1, 5]\nx [2, 3]\nw always\n");
}

TEST(Liveness, WhatARepeatReadsFromBeforeItLivesUntilItsEnd) {
  EXPECT_EQ(liveness_of(R"(
      tensor rate : f32[] stream
      tensor x : f32[4] stream
      tensor y : f32[4] activation
      function train
      repeat 1
      rate = stream_in() stream="c"   # step 0
      repeat 3
      x = stream_in() stream="s"      # step 1
      y = scale(x, rate)              # step 2: read in every round
      y = relu(y)                     # step 3; the repeat is step 4
  )"),
            "rate [0, 4]\nx [1, 2]\ny [2, 3]\n");
}

TEST(Liveness, WhatAFunctionReadsBeforeWritingCarriesOver) {
  EXPECT_EQ(liveness_of(R"(
      tensor total : f32[3] metric
      tensor other : f32[3] metric
      function begin
      repeat 1
      total = fill() value=0.0
      function more
      repeat 1
      total = accumulate(total, total)
  )"),
            "total always\nother unused\n");
}

TEST(Liveness, WhatACalledFunctionLeavesToTheNextLivesInBoth) {
  EXPECT_EQ(liveness_of(R"(
      tensor x : f32[4] stream
      tensor h : f32[4] activation
      tensor t : f32[4] activation
      tensor g : f32[4] activation
      tensor sum : f32[4] gradient
      function train
      repeat 1
      sum = fill() value=0.0                      # step 0
      repeat 3
      call() function="forward" micro_batch=0     # step 1
      call() function="backward" micro_batch=0    # step 2, and the repeat is step 3
      repeat 1
      stream_out(sum) stream="step"               # step 4
      function forward
      repeat 1
      x = stream_in() stream="s"                  # step 5
      h = relu(x)                                 # step 6
      t = relu(h)                                 # step 7: t is dead, h is for backward
      function backward
      repeat 1
      g = relu_gradient(h, h)                     # step 8
      sum = accumulate(sum, g)                    # step 9
  )"),
            "x [5, 6]\nh [2, 2] [6, 8]\nt [7, 7]\ng [8, 9]\nsum [0, 9]\n");
}

TEST(Liveness, WhatOneCycleLeavesToTheNextLivesAcrossTheRoundsEnd) {
  EXPECT_EQ(liveness_of(R"(
      tensor y : f32[4] activation
      tensor y@1 : f32[4] activation ipu=1
      tensor z : f32[4] activation ipu=1
      function train
      repeat 1
      call() function="first" micro_batch=0       # step 0
      y@1 = copy(y)                               # step 1
      repeat 8
      call() function="first" micro_batch=1       # step 2
      call() function="second" micro_batch=0      # step 3
      y@1 = copy(y)                               # step 4, and the repeat is step 5
      repeat 1
      call() function="second" micro_batch=8      # step 6
      function first
      repeat 1
      y = stream_in() stream="s"                  # step 7
      function second
      repeat 1
      z = relu(y@1)                               # step 8
  )"),
            "y [1, 1] [3, 4] [7, 8]\ny@1 [1, 8]\nz [8, 8]\n");
}

TEST(Liveness, AStashLivesFromItsFirstEntryToItsLastUse) {
  EXPECT_EQ(liveness_of(R"(
      tensor x : f32[4] stream
      tensor s : f32[3,4] activation
      tensor r : f32[4] activation
      tensor other : f32[4] activation
      function train
      repeat 1
      other = fill() value=0.0                    # step 0
      repeat 9
      call() function="first" micro_batch=2       # step 1
      call() function="second" micro_batch=0      # step 2, and the repeat is step 3
      repeat 1
      other = fill() value=0.0                    # step 4
      function first
      repeat 1
      x = stream_in() stream="s"                  # step 5
      s = stash(x)                                # step 6
      function second
      repeat 1
      r = restore(s)                              # step 7
  )"),
            "x [5, 6]\ns [1, 3] [5, 7]\nr [7, 7]\nother [0, 0] [4, 4]\n");
}

TEST(Liveness, KnowsWhatIsDeadBehindAStepWhereverItIsCalledFrom) {
  const auto graph = parse_graph(R"(
      tensor y : f32[4] activation
      tensor z : f32[4] activation
      function train
      repeat 1
      call() function="make" micro_batch=0        # step 0
      call() function="read" micro_batch=0        # step 1: y goes on
      call() function="read" micro_batch=0        # step 2
      function make
      repeat 1
      y = stream_in() stream="s"                  # step 3
      function read
      repeat 1
      z = relu(y)                                 # step 4
  )");
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_THAT(compute_liveness(*graph).deaths[4], ElementsAre(1)) << "z, but not y";
}

}  // namespace
}  // namespace poprun
