/// Blocks and tiles, running sums, triangles and casts: the forward pass is compared with the definition or hand-made
/// values, and gradients with central differences.

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/models/layers/shapes.h"
#include "tests/unit/replica/composition.h"
#include "tests/unit/replica/probe.h"

namespace poprun::rearrange_test {
namespace {

using layers::DepthOrder;
using testing::Composition;
using ::testing::ElementsAre;
using testing::f32;
using testing::GraphRunner;
using testing::image;
using testing::Probe;

void count_up(std::span<float> values) {
  float next = 0;
  for (float& x : values) {
    x = next++;
  }
}

/// Returns the element (n, c, h, w) of an image in memory.
float element(const TensorType& type, std::span<const float> values, std::int64_t n, std::int64_t c, std::int64_t h,
              std::int64_t w) {
  const Shape& d = type.shape;
  const std::int64_t at = type.layout == Layout::kChannelsLast ? ((n * d[2] + h) * d[3] + w) * d[1] + c
                                                               : ((n * d[1] + c) * d[2] + h) * d[3] + w;
  return values[static_cast<std::size_t>(at)];
}

/// The parameter is the layout.
class Blocks : public ::testing::TestWithParam<Layout> {
 protected:
  /// Compares the blocks of a deep image x with those of a wide one y; `channel` maps channel c and pixel (i, j) of a
  /// block to a channel of x.
  template <typename Channel>
  static void expect_blocks(const TensorType& deep, std::span<const float> x, const TensorType& wide,
                            std::span<const float> y, Channel channel) {
    for (std::int64_t c = 0; c < wide.shape[1]; ++c) {
      for (std::int64_t h = 0; h < wide.shape[2]; ++h) {
        for (std::int64_t w = 0; w < wide.shape[3]; ++w) {
          for (std::int64_t n = 0; n < wide.shape[0]; ++n) {
            EXPECT_EQ(element(wide, y, n, c, h, w), element(deep, x, n, channel(c, h % 2, w % 2), h / 2, w / 2));
          }
        }
      }
    }
  }
};

TEST_P(Blocks, DepthGoesToSpaceInEitherOrder) {
  const TensorType x{DataType::kF32, {2, 12, 2, 3}, GetParam()};
  const TensorType y{DataType::kF32, {2, 3, 4, 6}, GetParam()};
  for (const DepthOrder order : {DepthOrder::kBlockFirst, DepthOrder::kChannelFirst}) {
    Composition blocks({x}, [&](Builder& builder, const std::vector<TensorId>& inputs) {
      return layers::depth_to_space(builder, "y", inputs[0], 2, order);
    });
    ASSERT_EQ(blocks.graph().tensor(blocks.y()).type, y);
    GraphRunner runner(blocks.graph());
    blocks.randomise(runner, 1.0F, 101);
    blocks.run_forward(runner);
    expect_blocks(x, runner.floats(blocks.input(0)), y, runner.floats(blocks.y()),
                  [&](std::int64_t c, std::int64_t i, std::int64_t j) {
                    return order == DepthOrder::kBlockFirst ? (i * 2 + j) * 3 + c : c * 4 + i * 2 + j;
                  });
    blocks.expect_gradients(runner, 0.5F, 1e-4);
  }
}

TEST_P(Blocks, SpaceGoesToDepth) {
  const TensorType x{DataType::kF32, {2, 3, 4, 6}, GetParam()};
  const TensorType y{DataType::kF32, {2, 12, 2, 3}, GetParam()};
  Composition blocks({x}, [&](Builder& builder, const std::vector<TensorId>& inputs) {
    return layers::space_to_depth(builder, "y", inputs[0], 2);
  });
  ASSERT_EQ(blocks.graph().tensor(blocks.y()).type, y);
  GraphRunner runner(blocks.graph());
  blocks.randomise(runner, 1.0F, 102);
  blocks.run_forward(runner);
  expect_blocks(y, runner.floats(blocks.y()), x, runner.floats(blocks.input(0)),
                [](std::int64_t c, std::int64_t i, std::int64_t j) { return (i * 2 + j) * 3 + c; });
  blocks.expect_gradients(runner, 0.5F, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Blocks, ::testing::Values(Layout::kRowMajor, Layout::kChannelsLast));

/// Sets every element to its logical place: 1000 n + 100 c + 10 h + w.
void number(const TensorType& type, std::span<float> values) {
  const Shape& d = type.shape;
  for (std::int64_t k = 0; k < type.elements(); ++k) {
    const std::int64_t w = k / d[1] % d[3];
    const std::int64_t h = k / d[1] / d[3] % d[2];
    const std::int64_t n = k / d[1] / d[3] / d[2];
    values[static_cast<std::size_t>(k)] = static_cast<float>(1000 * n + 100 * (k % d[1]) + 10 * h + w);
  }
}

TEST(ImagePieces, AreCutAlongAnyAxis) {
  for (std::int64_t axis = 0; axis < 4; ++axis) {
    Shape shape = {2, 2, 2, 2};
    shape[static_cast<std::size_t>(axis)] = 4;
    Probe probe("slice", {image(shape)},
                {{"axis", axis}, {"begin", std::int64_t{3}}, {"count", std::int64_t{2}}, {"step", std::int64_t{-2}}},
                1);
    GraphRunner runner(probe.graph());
    probe.randomise(runner, 1.0F, 106);
    const TensorId x = probe.operation().inputs[0];
    const TensorId y = probe.operation().outputs[0];
    number(probe.type(x), runner.floats(x));
    runner.run(probe.operation());
    ASSERT_EQ(probe.type(y), image({2, 2, 2, 2}));
    for (std::int64_t k = 0; k < 16; ++k) {
      Shape place = {k / 8, k / 4 % 2, k / 2 % 2, k % 2};
      const float found = element(probe.type(y), runner.floats(y), place[0], place[1], place[2], place[3]);
      std::int64_t& cut = place[static_cast<std::size_t>(axis)];
      cut = 3 - 2 * cut;
      EXPECT_EQ(found, static_cast<float>(1000 * place[0] + 100 * place[1] + 10 * place[2] + place[3]));
    }
    probe.expect_gradients(runner, 0.5F, 1e-3);
  }
}

TEST(ImagePieces, LieSideBySideInTheChannels) {
  Composition concat({image({2, 1, 1, 2}), image({2, 2, 1, 2})}, [](Builder& builder, const std::vector<TensorId>& x) {
    return builder.add_one("concat", x, {{"axis", std::int64_t{1}}}, "y");
  });
  GraphRunner runner(concat.graph());
  concat.randomise(runner, 1.0F, 107);
  std::ranges::copy(std::vector{1.0F, 2.0F, 3.0F, 4.0F}, runner.floats(concat.input(0)).begin());
  count_up(runner.floats(concat.input(1)));
  concat.run_forward(runner);
  EXPECT_THAT(runner.floats(concat.y()), ElementsAre(1, 0, 1, 2, 2, 3, 3, 4, 5, 4, 6, 7));
  concat.expect_gradients(runner, 0.5F, 1e-4);
}

// Only the first of two pieces reaches y. The gradient of the second is zero and has the layout of an image.
TEST(ImagePieces, WithoutUseHaveZeroGradients) {
  Composition split({image({1, 3, 1, 2})}, [](Builder& builder, const std::vector<TensorId>& x) {
    return builder.add("split", {x[0]}, {{"axis", std::int64_t{1}}, {"sizes", Shape{2, 1}}}, {"y", "z"})[0];
  });
  GraphRunner runner(split.graph());
  split.randomise(runner, 1.0F, 108);
  count_up(runner.floats(split.input(0)));
  split.run_forward(runner);
  EXPECT_THAT(runner.floats(split.y()), ElementsAre(0, 1, 3, 4));
  split.expect_gradients(runner, 0.5F, 1e-4);
}

TEST(Tile, RepeatsAlongEachDimension) {
  Composition tile({f32({2, 2})}, [](Builder& builder, const std::vector<TensorId>& x) {
    return layers::tile(builder, "y", x[0], {2, 3});
  });
  GraphRunner runner(tile.graph());
  tile.randomise(runner, 1.0F, 103);
  count_up(runner.floats(tile.input(0)));
  tile.run_forward(runner);
  EXPECT_EQ(tile.y_shape(), (Shape{4, 6}));
  EXPECT_THAT(runner.floats(tile.y()), ElementsAre(0, 1, 0, 1, 0, 1,  //
                                                   2, 3, 2, 3, 2, 3,  //
                                                   0, 1, 0, 1, 0, 1,  //
                                                   2, 3, 2, 3, 2, 3));
  tile.expect_gradients(runner, 0.5F, 1e-4);
}

TEST(Rearrange, RefusesWhatDoesNotDivideByName) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}};
  Builder builder(graph, {0, 0}, "");
  const TensorId x = graph.add_tensor({"x", image({1, 6, 2, 2}), Role::kActivation});

  layers::depth_to_space(builder, "pixels", x, 2, DepthOrder::kBlockFirst);

  ASSERT_FALSE(builder.status());
  EXPECT_EQ(builder.status().error().message,
            "pixels: needs f32[N,C,H,W] with C a multiple of 2 * 2; given: "
            "f32[1,6,2,2]{nhwc}");
}

struct CumSumCase {
  std::int64_t axis, exclusive, reverse;
  std::vector<float> expected;  ///< For [[0, 1, 2], [3, 4, 5]].
};

TEST(CumSum, RunsEitherWayAlongAnyAxis) {
  const std::vector<CumSumCase> cases = {{1, 0, 0, {0, 1, 3, 3, 7, 12}}, {1, 1, 0, {0, 0, 1, 0, 3, 7}},
                                         {1, 0, 1, {3, 3, 2, 12, 9, 5}}, {1, 1, 1, {3, 2, 0, 9, 5, 0}},
                                         {0, 0, 0, {0, 1, 2, 3, 5, 7}},  {0, 1, 1, {3, 4, 5, 0, 0, 0}}};
  for (const CumSumCase& c : cases) {
    Probe probe("cum_sum", {f32({2, 3})}, {{"axis", c.axis}, {"exclusive", c.exclusive}, {"reverse", c.reverse}}, 1);
    GraphRunner runner(probe.graph());
    probe.randomise(runner, 1.0F, 104);
    count_up(runner.floats(probe.operation().inputs[0]));
    runner.run(probe.operation());
    EXPECT_THAT(runner.floats(probe.operation().outputs[0]), ::testing::ElementsAreArray(c.expected));
    probe.expect_gradients(runner, 0.5F, 1e-4);
  }
}

struct TriluCase {
  std::int64_t upper, k;
  std::vector<float> expected;  ///< For two matrices [[1, 1, 1], [1, 1, 1]].
};

TEST(Trilu, KeepsOneSideOfADiagonal) {
  const std::vector<TriluCase> cases = {{1, 0, {1, 1, 1, 0, 1, 1}},
                                        {0, 0, {1, 0, 0, 1, 1, 0}},
                                        {1, 1, {0, 1, 1, 0, 0, 1}},
                                        {0, -1, {0, 0, 0, 1, 0, 0}},
                                        {1, -1, {1, 1, 1, 1, 1, 1}}};
  for (const TriluCase& c : cases) {
    Probe probe("trilu", {f32({2, 2, 3})}, {{"upper", c.upper}, {"k", c.k}}, 1);
    GraphRunner runner(probe.graph());
    probe.randomise(runner, 1.0F, 105);
    std::ranges::fill(runner.floats(probe.operation().inputs[0]), 1.0F);
    runner.run(probe.operation());
    const auto y = runner.floats(probe.operation().outputs[0]);
    EXPECT_THAT(y.first(6), ::testing::ElementsAreArray(c.expected));
    EXPECT_THAT(y.last(6), ::testing::ElementsAreArray(c.expected));
    probe.expect_gradients(runner, 0.5F, 1e-4);
  }
}

/// Runs one operation on values of one type; returns the result as values of another type.
template <typename To, typename From>
std::vector<To> run(const std::string& kind, DataType data, const Attributes& attributes, const std::vector<From>& x) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}};
  Builder builder(graph, {0, 0}, "");
  const TensorId input = graph.add_tensor({"x", {data, {static_cast<std::int64_t>(x.size())}, {}}, Role::kActivation});
  const TensorId output = builder.add_one(kind, {input}, attributes, "y");
  EXPECT_TRUE(builder.status());
  GraphRunner runner(graph);
  std::memcpy(runner.bytes(input), x.data(), x.size() * sizeof(From));
  runner.run(builder.operations());
  std::vector<To> y(static_cast<std::size_t>(graph.tensor(output).type.elements()));
  std::memcpy(y.data(), runner.bytes(output), y.size() * sizeof(To));
  return y;
}

TEST(Cast, CutsOffFractionsAndStaysWithinTheType) {
  const std::string to = "to";
  const std::vector<float> x = {-2.7F, 2.7F, 3e10F, -3e10F, std::nanf("")};
  EXPECT_THAT((run<std::int32_t>("cast", DataType::kF32, {{to, std::string{"i32"}}}, x)),
              ElementsAre(-2, 2, 2147483647, -2147483647 - 1, 0));
  EXPECT_THAT((run<std::uint8_t>("cast", DataType::kF32, {{to, std::string{"u8"}}}, x)), ElementsAre(0, 2, 255, 0, 0));
  EXPECT_THAT((run<float>("cast", DataType::kI32, {{to, std::string{"f32"}}}, std::vector<std::int32_t>{-7, 16777216})),
              ElementsAre(-7.0F, 16777216.0F));
  EXPECT_THAT((run<float>("cast", DataType::kU8, {{to, std::string{"f32"}}}, std::vector<std::uint8_t>{0, 255})),
              ElementsAre(0.0F, 255.0F));
}

TEST(OneHot, CountsNegativeIndicesFromTheEndAndIgnoresThoseOutside) {
  EXPECT_THAT((run<float>("one_hot", DataType::kI32, {{"depth", std::int64_t{3}}, {"on", 2.0}, {"off", -1.0}},
                          std::vector<std::int32_t>{1, -1, 3, -4})),
              ElementsAre(-1, 2, -1, -1, -1, 2, -1, -1, -1, -1, -1, -1));
}

}  // namespace
}  // namespace poprun::rearrange_test
