#include "replica/compiler/liveness/liveness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace poprun {
namespace {

/// Text in, text out: `name [first, last]` or `name always`, one line per tensor.
std::string liveness_of(std::string_view text) {
  const auto graph = parse_graph(text);
  if (!graph) {
    return graph.error().message;
  }
  const Liveness liveness = compute_liveness(*graph);
  std::string lines;
  for (std::size_t t = 0; t < graph->tensors().size(); ++t) {
    const Life& life = liveness.lives[t];
    const std::string when = !life.used         ? "unused"
                             : life.always_live ? "always"
                                                : fmt::format("[{}, {}]", life.first, life.last);
    lines += fmt::format("{} {}\n", graph->tensors()[t].name, when);
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

}  // namespace
}  // namespace poprun
