/// Pooling against central differences.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_runner.h"
#include "probe.h"

namespace poprun {
namespace {

using testing::distinct;
using testing::GraphRunner;
using testing::image;
using testing::Probe;

struct PoolCase {
  Shape x, window, stride;
};
class Maxpool2d : public ::testing::TestWithParam<PoolCase> {};

TEST_P(Maxpool2d, GradientAgreesWithDifferences) {
  const PoolCase& c = GetParam();
  Probe probe("maxpool2d", {image(c.x)}, {{"window", c.window}, {"stride", c.stride}}, 1);
  GraphRunner runner(probe.graph());
  probe.randomise(runner, 1.0F, 9);
  distinct(runner.floats(probe.operation().inputs[0]), 0.1F, 9);
  probe.expect_gradients(runner, 0.01F, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Maxpool2d,
                         ::testing::Values(PoolCase{{2, 3, 4, 4}, {2, 2}, {2, 2}},
                                           PoolCase{{1, 2, 5, 7}, {3, 3}, {2, 2}},
                                           PoolCase{{1, 20, 5, 5}, {2, 3}, {1, 2}}));

TEST(Maxpool2d, GivesTheGradientOfATieToTheFirstOnly) {
  Probe probe("maxpool2d", {image({1, 1, 2, 2})},
              {{"window", Shape{2, 2}}, {"stride", Shape{2, 2}}}, 1);
  GraphRunner runner(probe.graph());
  std::ranges::copy(std::vector{1.0F, 4.0F, 4.0F, 4.0F},
                    runner.floats(probe.operation().inputs[0]).begin());
  runner.floats(probe.dy())[0] = 3.0F;
  Graph graph = probe.graph();

  runner.run(graph.functions[1].regions[0].operations);

  EXPECT_THAT(runner.floats(graph.find("g0")), ::testing::ElementsAre(0.0F, 3.0F, 0.0F, 0.0F));
}

}  // namespace
}  // namespace poprun
