/// Reductions of off-chip accumulators, one at a time.

#include "replica/compiler/techniques/residence/split_reductions.h"

#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/unit/replica/texts.h"

namespace poprun {
namespace {

/// The job joins a and b from slices. c is not sliced.
constexpr std::string_view kTensors = R"(
    tensor a.0 : f32[2] gradient
    tensor a.1 : f32[2] gradient
    tensor b.0 : f32[2] gradient
    tensor b.1 : f32[2] gradient
    tensor a : f32[4] gradient
    tensor b : f32[4] gradient
    tensor c : f32[4] gradient
    tensor m : f32[4] metric
    tensor v : f32[4] parameter
    tensor w : f32[4] parameter
    tensor u : f32[4] parameter
    function train
    repeat 1
)";

/// Returns the operations after splitting the reductions, if all slices and c are off-chip.
std::string split(std::string_view operations) {
  Graph graph = *parse_graph(std::string{kTensors} + std::string{operations} + "function called\nrepeat 1\n");
  std::set<TensorId> off_chip;
  for (const char* name : {"a.0", "a.1", "b.0", "b.1", "c"}) {
    off_chip.insert(graph.find(name));
  }
  split_reductions(graph.at({0, 0}), off_chip);
  const std::string text = to_text(graph);
  const std::size_t begin =
      text.find("function train\nrepeat 1\n") + std::string_view{"function train\nrepeat 1\n"}.size();
  return text.substr(begin, text.find("function called") - begin);
}

TEST(SplitReductions, ReduceAnAccumulatorRightBeforeItsUse) {
  EXPECT_EQ(split("c, m = all_reduce(c, m) reduction=\"mean\"\n"
                  "u = relu(m)\n"
                  "w = add(w, c)\n"),
            "m = all_reduce(m) reduction=\"mean\"\n"
            "u = relu(m)\n"
            "c = all_reduce(c) reduction=\"mean\"\n"
            "w = add(w, c)\n");
}

TEST(SplitReductions, JoinSlicesRightBeforeTheirReduction) {
  EXPECT_EQ(split("a = concat(a.0, a.1) axis=0\n"
                  "b = concat(b.0, b.1) axis=0\n"
                  "a, b, c = all_reduce(a, b, c) reduction=\"mean\"\n"
                  "u = add(u, c)\n"
                  "w = add(w, b)\n"
                  "v = add(v, a)\n"),
            "c = all_reduce(c) reduction=\"mean\"\n"
            "u = add(u, c)\n"
            "b = concat(b.0, b.1) axis=0\n"
            "b = all_reduce(b) reduction=\"mean\"\n"
            "w = add(w, b)\n"
            "a = concat(a.0, a.1) axis=0\n"
            "a = all_reduce(a) reduction=\"mean\"\n"
            "v = add(v, a)\n");
}

TEST(SplitReductions, JoinSlicesBeforeOneOfThemIsOverwritten) {
  EXPECT_EQ(split("a = concat(a.0, a.1) axis=0\n"
                  "a = all_reduce(a) reduction=\"mean\"\n"
                  "a.1 = fill() shape=[2] value=0.0\n"
                  "v = add(v, a)\n"),
            "a = concat(a.0, a.1) axis=0\n"
            "a = all_reduce(a) reduction=\"mean\"\n"
            "a.1 = fill() shape=[2] value=0.0\n"
            "v = add(v, a)\n");
}

TEST(SplitReductions, JoinSlicesBeforeTheyAreReducedThemselves) {
  EXPECT_EQ(split("a = concat(a.0, a.1) axis=0\n"
                  "a.1 = all_reduce(a.1) reduction=\"mean\"\n"
                  "v = add(v, a)\n"),
            "a = concat(a.0, a.1) axis=0\n"
            "v = add(v, a)\n"
            "a.1 = all_reduce(a.1) reduction=\"mean\"\n");
}

TEST(SplitReductions, JoinSlicesBeforeACall) {
  EXPECT_EQ(split("a = concat(a.0, a.1) axis=0\n"
                  "call() function=\"called\" micro_batch=0\n"
                  "v = add(v, a)\n"),
            "a = concat(a.0, a.1) axis=0\n"
            "call() function=\"called\" micro_batch=0\n"
            "v = add(v, a)\n");
}

TEST(SplitReductions, LeaveExchangesInTheBackground) {
  constexpr std::string_view kBackground =
      "c = all_reduce(c) background=1 reduction=\"mean\"\n"
      "m = relu(m)\n"
      "u = add(u, c)\n";
  EXPECT_EQ(split(kBackground), kBackground);
}

}  // namespace
}  // namespace poprun
