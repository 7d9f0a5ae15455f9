/// Operators that move elements: gather, transpose, slice, split, concat.

#include <algorithm>
#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/arithmetic/differentiation.h"
#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/probe.h"

namespace poprun {
namespace {

using ::testing::ElementsAre;
using testing::f32;
using testing::GraphRunner;
using testing::Probe;

void count_up(std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i);
  }
}

class Gather : public ::testing::Test {
 protected:
  Gather(Shape x, Shape indices, std::int64_t axis, std::int64_t batch_dims)
      : probe_("gather", {f32(std::move(x)), {DataType::kI32, std::move(indices), {}}},
               {{"axis", axis}, {"batch_dims", batch_dims}}, 1),
        runner_(probe_.graph()) {
    probe_.randomise(runner_, 1.0F, 41);
  }
  void set_indices(const std::vector<std::int32_t>& indices) {
    std::memcpy(runner_.bytes(probe_.operation().inputs[1]), indices.data(), indices.size() * sizeof(std::int32_t));
  }
  std::span<float> y() { return runner_.floats(probe_.operation().outputs[0]); }
  std::span<float> x() { return runner_.floats(probe_.operation().inputs[0]); }

  Probe probe_;
  GraphRunner runner_;
};

struct Table : Gather {
  Table() : Gather({4, 2}, {2, 3}, 0, 0) {}
};

TEST_F(Table, GathersRowsAndCountsNegativeIndicesFromTheEnd) {
  count_up(x());
  set_indices({0, 3, 1, -1, -4, 2});
  runner_.run(probe_.operation());
  EXPECT_THAT(y(), ElementsAre(0, 1, 6, 7, 2, 3, 6, 7, 0, 1, 4, 5));
}

TEST_F(Table, ReadsZerosOutOfRange) {
  count_up(x());
  set_indices({4, 3, 2147483647, -5, -2147483647 - 1, 2});
  runner_.run(probe_.operation());
  EXPECT_THAT(y(), ElementsAre(0, 0, 6, 7, 0, 0, 0, 0, 0, 0, 4, 5));
}

TEST_F(Table, GradientAgreesWithDifferencesWhereRowsRepeatOrAreOutOfRange) {
  set_indices({0, 3, 3, -1, 7, -9});
  probe_.expect_gradients(runner_, 0.5F, 1e-5);
}

TEST(GatherGradient, AddsToWhatOtherUsesOfTheTableContribute) {
  Graph graph;
  const TensorId dy = graph.add_tensor({"dy", f32({3, 2}), Role::kActivation});
  const TensorId indices = graph.add_tensor({"indices", {DataType::kI32, {3}, {}}, Role::kStream});
  const TensorId base = graph.add_tensor({"base", f32({3, 2}), Role::kActivation});
  const TensorId dx = graph.add_tensor({"dx", f32({3, 2}), Role::kActivation});
  GraphRunner runner(graph);
  count_up(runner.floats(dy));
  std::ranges::copy(std::vector<float>{10, 20, 30, 40, 50, 60}, runner.floats(base).begin());
  const std::int32_t rows[] = {2, 0, 2};
  std::memcpy(runner.bytes(indices), rows, sizeof(rows));

  runner.run({"gather_gradient", {dy, indices, base}, {dx}, {{"axis", std::int64_t{0}}, {"input_shape", Shape{3, 2}}}});

  EXPECT_THAT(runner.floats(dx), ElementsAre(12, 23, 30, 40, 54, 66));
}

TEST(GatherGradient, OfATableWithTwoUsesIsOneAUse) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}}}};
  Builder builder(graph, {1, 0}, "");
  const TensorId x = graph.add_tensor({"x", f32({2, 2}), Role::kParameter});
  const TensorId rows = graph.add_tensor({"rows", {DataType::kI32, {2}, {}}, Role::kStream});
  const TensorId labels = graph.add_tensor({"labels", {DataType::kI32, {2}, {}}, Role::kStream});
  const TensorId gathered = builder.add_one("gather", {x, rows}, {{"axis", std::int64_t{0}}}, "gathered");
  const TensorId sum = builder.add_one("add", {gathered, x}, {}, "sum");
  const auto loss = builder.add("softmax_cross_entropy", {sum, labels}, {}, {"loss", "correct", "count"});
  const auto gradients =
      differentiate(builder, {{loss[0], builder.add_one("fill", {}, {{"shape", Shape{}}, {"value", 2.0}}, "two")}});
  ASSERT_TRUE(gradients) << gradients.error().message;
  GraphRunner runner(graph);
  std::ranges::fill(runner.floats(x), 1.0F);
  std::memset(runner.bytes(rows), 0, 8);
  std::memset(runner.bytes(labels), 0, 8);

  runner.run(builder.operations());

  // Both logits are equal, so each row's gradient is (-1/2, 1/2); row 0 is gathered twice. The last use comes first.
  ASSERT_EQ(gradients->size(), 2U);
  EXPECT_THAT(runner.floats(gradients->at(0).gradient), ElementsAre(-0.5F, 0.5F, -0.5F, 0.5F));
  EXPECT_THAT(runner.floats(gradients->at(1).gradient), ElementsAre(-1.0F, 1.0F, 0.0F, 0.0F));
}

struct InnerAxis : Gather {
  InnerAxis() : Gather({2, 3, 2}, {2}, 1, 0) {}
};

TEST_F(InnerAxis, TakesTheSameRowsOfEveryOuterItem) {
  count_up(x());
  set_indices({2, 0});
  runner_.run(probe_.operation());
  EXPECT_THAT(y(), ElementsAre(4, 5, 0, 1, 10, 11, 6, 7));
  probe_.expect_gradients(runner_, 0.5F, 1e-4);
}

struct Batched : Gather {
  Batched() : Gather({2, 3, 2}, {2, 2}, 1, 1) {}
};

TEST_F(Batched, TakesEachItemsOwnRows) {
  count_up(x());
  set_indices({2, 0, 1, 1});
  runner_.run(probe_.operation());
  EXPECT_THAT(y(), ElementsAre(4, 5, 0, 1, 8, 9, 8, 9));
  probe_.expect_gradients(runner_, 0.5F, 1e-4);
}

TEST(Transpose, MovesDimensions) {
  Probe probe("transpose", {f32({2, 3, 2})}, {{"perm", Shape{1, 2, 0}}}, 1);
  GraphRunner runner(probe.graph());
  probe.randomise(runner, 1.0F, 42);
  count_up(runner.floats(probe.operation().inputs[0]));
  runner.run(probe.operation());
  EXPECT_EQ(probe.type(probe.operation().outputs[0]).shape, (Shape{3, 2, 2}));
  EXPECT_THAT(runner.floats(probe.operation().outputs[0]), ElementsAre(0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11));
  probe.expect_gradients(runner, 0.5F, 1e-4);
}

struct SliceCase {
  std::int64_t axis, begin, count, step;
  std::vector<float> expected;
};

TEST(Slice, TakesStepsEitherWay) {
  const std::vector<SliceCase> cases = {{0, 1, 1, 1, {4, 5, 6, 7}},
                                        {1, 1, 2, 1, {1, 2, 5, 6}},
                                        {1, 0, 2, 2, {0, 2, 4, 6}},
                                        {1, 3, 4, -1, {3, 2, 1, 0, 7, 6, 5, 4}}};
  for (const SliceCase& c : cases) {
    Probe probe("slice", {f32({2, 4})}, {{"axis", c.axis}, {"begin", c.begin}, {"count", c.count}, {"step", c.step}},
                1);
    GraphRunner runner(probe.graph());
    probe.randomise(runner, 1.0F, 43);
    count_up(runner.floats(probe.operation().inputs[0]));
    runner.run(probe.operation());
    EXPECT_THAT(runner.floats(probe.operation().outputs[0]), ::testing::ElementsAreArray(c.expected));
    probe.expect_gradients(runner, 0.5F, 1e-4);
  }
}

TEST(Slice, RefusesToLeaveTheAxis) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}};
  Builder builder(graph, {0, 0}, "");
  const TensorId x = graph.add_tensor({"x", f32({2, 4}), Role::kActivation});
  builder.add_one("slice", {x}, {{"axis", std::int64_t{1}}, {"begin", std::int64_t{2}}, {"count", std::int64_t{3}}},
                  "y");
  EXPECT_FALSE(builder.status());
}

TEST(Concat, PutsInputsSideBySide) {
  Probe probe("concat", {f32({2, 1}), f32({2, 2})}, {{"axis", std::int64_t{1}}}, 1);
  GraphRunner runner(probe.graph());
  probe.randomise(runner, 1.0F, 44);
  count_up(runner.floats(probe.operation().inputs[0]));
  count_up(runner.floats(probe.operation().inputs[1]));
  runner.run(probe.operation());
  EXPECT_THAT(runner.floats(probe.operation().outputs[0]), ElementsAre(0, 0, 1, 1, 2, 3));
  probe.expect_gradients(runner, 0.5F, 1e-4);
}

// Only the last of three pieces reaches the loss; the others' gradients are zero.
TEST(Split, GradientIsZeroForPiecesWithoutUse) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}}}};
  Builder builder(graph, {1, 0}, "");
  const TensorId x = graph.add_tensor({"x", f32({2, 5}), Role::kParameter});
  const TensorId labels = graph.add_tensor({"labels", {DataType::kI32, {2}, {}}, Role::kStream});
  const auto pieces =
      builder.add("split", {x}, {{"axis", std::int64_t{1}}, {"sizes", Shape{1, 2, 2}}}, {"a", "b", "c"});
  const auto loss = builder.add("softmax_cross_entropy", {pieces[2], labels}, {}, {"loss", "correct", "count"});
  const auto gradients =
      differentiate(builder, {{loss[0], builder.add_one("fill", {}, {{"shape", Shape{}}, {"value", 1.0}}, "one")}});
  ASSERT_TRUE(gradients) << gradients.error().message;
  GraphRunner runner(graph);
  count_up(runner.floats(x));
  std::memset(runner.bytes(labels), 0, 8);

  runner.run(builder.operations());

  EXPECT_THAT(runner.floats(pieces[1]), ElementsAre(1, 2, 6, 7));
  // The logits differ by one, so p = e / (1 + e), and the loss is a mean over two rows.
  const float p = 0.5F * 0.731058579F;
  EXPECT_THAT(runner.floats(gradients->at(0).gradient),
              ::testing::Pointwise(::testing::FloatNear(1e-6F), {0.0F, 0.0F, 0.0F, -p, p, 0.0F, 0.0F, 0.0F, -p, p}));
}

}  // namespace
}  // namespace poprun
