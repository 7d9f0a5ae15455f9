/// Comparisons and where: values against hand-made ones, gradients against central differences.

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/probe.h"

namespace poprun {
namespace {

using ::testing::ElementsAre;
using testing::f32;
using testing::GraphRunner;
using testing::image;
using testing::Probe;

template <typename T>
std::vector<float> compare(const std::string& kind, DataType data, const std::vector<T>& a, const std::vector<T>& b) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}};
  Builder builder(graph, {0, 0}, "");
  const auto tensor = [&](const std::string& name, const std::vector<T>& values) {
    return graph.add_tensor({name, {data, {static_cast<std::int64_t>(values.size())}, {}}, Role::kActivation});
  };
  const TensorId left = tensor("a", a);
  const TensorId right = tensor("b", b);
  const TensorId mask = builder.add_one(kind, {left, right}, {}, "mask");
  GraphRunner runner(graph);
  std::memcpy(runner.bytes(left), a.data(), a.size() * sizeof(T));
  std::memcpy(runner.bytes(right), b.data(), b.size() * sizeof(T));
  runner.run(builder.operations());
  const auto y = runner.floats(mask);
  return {y.begin(), y.end()};
}

TEST(Comparisons, GiveOneWhereTheyHold) {
  const std::vector<float> a = {1, 2, 3, std::nanf("")};
  const std::vector<float> b = {2, 2, 2, std::nanf("")};
  EXPECT_THAT(compare("equal", DataType::kF32, a, b), ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(compare("greater", DataType::kF32, a, b), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(compare("greater_equal", DataType::kF32, a, b), ElementsAre(0, 1, 1, 0));
}

// The integers differ by one but are the same number in float.
TEST(Comparisons, OfIntegersAreExactAndBroadcast) {
  const std::vector<std::int32_t> a = {16777216, 16777217, 16777218};
  const std::vector<std::int32_t> b = {16777217};
  EXPECT_THAT(compare("equal", DataType::kI32, a, b), ElementsAre(0, 1, 0));
  EXPECT_THAT(compare("greater", DataType::kI32, a, b), ElementsAre(0, 0, 1));
  EXPECT_THAT(compare("greater_equal", DataType::kI32, a, b), ElementsAre(0, 1, 1));
}

TEST(Comparisons, RefuseToMixTypes) {
  const auto shape = find_operator("equal")->shape({{f32({2}), {DataType::kI32, {2}, {}}}, {}, {}});
  ASSERT_FALSE(shape);
  EXPECT_EQ(shape.error().message,
            "equal needs two f32 or two i32 tensors whose shapes broadcast; given: (f32[2], "
            "i32[2])");
}

struct WhereCase {
  TensorType mask, a, b;
  std::vector<float> mask_values;
  std::vector<float> expected;  ///< For a = 1, 2, ... and b = -1, -2, ... in memory.
};

class Where : public ::testing::TestWithParam<WhereCase> {
 protected:
  Where() : probe_("where", {GetParam().mask, GetParam().a, GetParam().b}, {}, 1), runner_(probe_.graph()) {
    probe_.randomise(runner_, 1.0F, 81);
    std::ranges::copy(GetParam().mask_values, runner_.floats(inputs()[0]).begin());
    for (const std::size_t input : {1U, 2U}) {
      float next = 0;
      for (float& x : runner_.floats(inputs()[input])) {
        x = input == 1 ? ++next : --next;
      }
    }
  }
  const std::vector<TensorId>& inputs() { return probe_.operation().inputs; }

  Probe probe_;
  GraphRunner runner_;
};

TEST_P(Where, ChoosesByTheMask) {
  runner_.run(probe_.operation());
  EXPECT_THAT(runner_.floats(probe_.operation().outputs[0]), ::testing::ElementsAreArray(GetParam().expected));
}

TEST_P(Where, GradientAgreesWithDifferences) {
  probe_.expect_gradients(runner_, 0.5F, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Where,
    ::testing::Values(WhereCase{f32({4}), f32({4}), f32({4}), {1, 0, 0, 1}, {1, -2, -3, 4}},
                      WhereCase{f32({2, 1}), f32({2}), f32({}), {1, 0}, {1, 2, -1, -1}},
                      WhereCase{f32({2}), f32({2, 2}), f32({2, 1}), {0, 2}, {-1, 2, -2, 4}},
                      // Two channels of two pixels are stored by pixels on the left and by planes on the right.
                      WhereCase{f32({2, 1, 1}), image({1, 2, 1, 2}), f32({1, 2, 1, 2}), {1, 0}, {1, -3, 3, -4}}));

}  // namespace
}  // namespace poprun
