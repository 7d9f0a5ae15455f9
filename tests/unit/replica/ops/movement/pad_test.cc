/// Padding: forward against results of numpy.pad, gradients against central differences.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/probe.h"

namespace poprun {
namespace {

using testing::f32;
using testing::GraphRunner;
using testing::image;
using testing::Probe;

struct PadCase {
  TensorType x;
  std::string mode;
  Shape begin, end;
  Shape y;
  std::vector<float> expected;  ///< For x = 1, 2, 3, ... in memory; padding is 9.
};

class Pad : public ::testing::TestWithParam<PadCase> {
 protected:
  Pad()
      : probe_("pad", {GetParam().x},
               {{"begin", GetParam().begin}, {"end", GetParam().end}, {"mode", GetParam().mode}, {"value", 9.0}}, 1),
        runner_(probe_.graph()) {
    probe_.randomise(runner_, 1.0F, 71);
    float next = 1;
    for (float& x : runner_.floats(probe_.operation().inputs[0])) {
      x = next++;
    }
  }
  Probe probe_;
  GraphRunner runner_;
};

TEST_P(Pad, GivesWhatNumpyGives) {
  runner_.run(probe_.operation());
  const TensorType& y = probe_.type(probe_.operation().outputs[0]);
  EXPECT_EQ(y.shape, GetParam().y);
  EXPECT_EQ(y.layout, GetParam().x.layout);
  EXPECT_THAT(runner_.floats(probe_.operation().outputs[0]), ::testing::ElementsAreArray(GetParam().expected));
}

TEST_P(Pad, GradientAgreesWithDifferences) {
  probe_.expect_gradients(runner_, 0.5F, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Modes, Pad,
    ::testing::Values(
        PadCase{f32({3}), "constant", {2}, {1}, {6}, {9, 9, 1, 2, 3, 9}},
        PadCase{f32({3}), "reflect", {2}, {1}, {6}, {3, 2, 1, 2, 3, 2}},
        PadCase{f32({3}), "edge", {2}, {1}, {6}, {1, 1, 1, 2, 3, 3}},
        // Padding that is wider than x mirrors x again.
        PadCase{f32({3}), "reflect", {5}, {0}, {8}, {2, 1, 2, 3, 2, 1, 2, 3}},
        PadCase{f32({1}), "reflect", {1}, {2}, {4}, {1, 1, 1, 1}},
        PadCase{f32({4}), "constant", {-1}, {-1}, {2}, {2, 3}}, PadCase{f32({4}), "edge", {-2}, {1}, {3}, {3, 4, 4}},
        PadCase{f32({2, 2}), "constant", {1, 0}, {0, 1}, {3, 3}, {9, 9, 9, 1, 2, 9, 3, 4, 9}},
        PadCase{f32({2, 2}), "reflect", {0, 1}, {1, 0}, {3, 3}, {2, 1, 2, 4, 3, 4, 2, 1, 2}},
        PadCase{f32({1, 2, 2}), "edge", {1, 0, 0}, {0, 0, 1}, {2, 2, 3}, {1, 2, 2, 3, 4, 4, 1, 2, 2, 3, 4, 4}},
        // Two channels of two pixels are stored pixel by pixel, and padded by one pixel before and one channel after.
        PadCase{
            image({1, 2, 1, 2}), "constant", {0, 0, 0, 1}, {0, 1, 0, 0}, {1, 3, 1, 3}, {9, 9, 9, 1, 2, 9, 3, 4, 9}}));

TEST(PadShape, RefusesToCutEverythingOff) {
  const auto shape = [](const Shape& begin, const Shape& end, const std::string& mode) {
    return find_operator("pad")->shape({{f32({2, 3})}, {}, {{"begin", begin}, {"end", end}, {"mode", mode}}});
  };
  EXPECT_TRUE(shape({-1, 0}, {0, 0}, "constant"));
  EXPECT_FALSE(shape({-1, 0}, {-1, 0}, "constant"));
  EXPECT_FALSE(shape({0}, {0, 0}, "constant"));
  EXPECT_FALSE(shape({0, 0}, {0, 0}, "wrap"));
}

}  // namespace
}  // namespace poprun
