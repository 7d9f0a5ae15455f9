/// Interpolation: forward against its definition in double and hand-made values, gradients against central differences.

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/probe.h"

namespace poprun::resize_test {
namespace {

using ::testing::ElementsAreArray;
using testing::f32;
using testing::GraphRunner;
using testing::image;
using testing::Probe;

Attributes attributes_of(std::int64_t axis, std::int64_t size, const std::string& mode,
                         const std::string& coordinates) {
  return {{"axis", axis}, {"size", size}, {"mode", mode}, {"coordinates", coordinates}};
}

std::vector<float> resize(const Attributes& attributes, const std::vector<float>& x) {
  Probe probe("resize", {f32({static_cast<std::int64_t>(x.size())})}, attributes, 1);
  GraphRunner runner(probe.graph());
  std::ranges::copy(x, runner.floats(probe.operation().inputs[0]).begin());
  runner.run(probe.operation());
  const auto y = runner.floats(probe.operation().outputs[0]);
  return {y.begin(), y.end()};
}

struct NearestCase {
  std::int64_t size;
  std::string coordinates, rounding;
  std::vector<float> expected;  ///< For 1, 2, 3, 4.
};

TEST(Resize, TakesTheNearestElement) {
  const std::vector<NearestCase> cases = {{8, "asymmetric", "floor", {1, 1, 2, 2, 3, 3, 4, 4}},
                                          {8, "half_pixel", "round_prefer_floor", {1, 1, 2, 2, 3, 3, 4, 4}},
                                          // Of the places 0, 0.5, 1, ..., the halves distinguish the rounding modes.
                                          {8, "asymmetric", "round_prefer_floor", {1, 1, 2, 2, 3, 3, 4, 4}},
                                          {8, "asymmetric", "round_prefer_ceil", {1, 2, 2, 3, 3, 4, 4, 4}},
                                          {8, "asymmetric", "ceil", {1, 2, 2, 3, 3, 4, 4, 4}},
                                          {7, "align_corners", "floor", {1, 1, 2, 2, 3, 3, 4}},
                                          {2, "half_pixel", "round_prefer_floor", {1, 3}},
                                          {2, "tf_half_pixel_for_nn", "floor", {2, 4}},
                                          {1, "align_corners", "floor", {1}},
                                          {1, "pytorch_half_pixel", "floor", {1}}};
  for (const NearestCase& c : cases) {
    Attributes attributes = attributes_of(0, c.size, "nearest", c.coordinates);
    attributes.set("rounding", c.rounding);
    EXPECT_THAT(resize(attributes, {1, 2, 3, 4}), ElementsAreArray(c.expected))
        << c.size << " " << c.coordinates << " " << c.rounding;
  }
}

// In ONNX's published examples, scale 0.6 of four elements gives two, and the scale stays 0.6.
TEST(Resize, TakesTheScaleThatIsGiven) {
  const auto by_scale = [](const std::string& coordinates) {
    Attributes attributes = attributes_of(0, 2, "linear", coordinates);
    attributes.set("scale", 0.6);
    return resize(attributes, {1, 2, 3, 4});
  };
  using ::testing::FloatNear;
  using ::testing::Pointwise;
  EXPECT_THAT(by_scale("half_pixel"), Pointwise(FloatNear(1e-6F), {4.0F / 3, 3.0F}));
  EXPECT_THAT(by_scale("align_corners"), Pointwise(FloatNear(1e-6F), {1.0F, 3.1428571F}));
}

/// Returns the weight of an element at distance d from y's position.
double kernel(const std::string& mode, double a, double d) {
  d = std::abs(d);
  if (mode == "linear") {
    return std::max(0.0, 1 - d);
  }
  if (d <= 1) {
    return (a + 2) * d * d * d - (a + 3) * d * d + 1;
  }
  return d < 2 ? a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a : 0;
}

/// Returns the sum that defines y at `place`. Beyond its ends, x repeats its end elements or, with `exclude`, is empty.
double interpolated(const std::vector<float>& x, double place, const std::string& mode, double a, bool exclude) {
  const auto A = static_cast<std::int64_t>(x.size());
  double sum = 0, weights = 0;
  for (std::int64_t i = -8; i < A + 8; ++i) {
    const double weight = kernel(mode, a, place - static_cast<double>(i));
    if (exclude && (i < 0 || i >= A)) {
      continue;
    }
    const std::int64_t source = std::clamp<std::int64_t>(i, 0, A - 1);
    sum += weight * static_cast<double>(x[static_cast<std::size_t>(source)]);
    weights += weight;
  }
  return exclude ? sum / weights : sum;
}

TEST(Resize, InterpolatesByItsKernel) {
  const std::vector<float> x = {3, -1, 4, 1.5F, -5};
  for (const std::int64_t size : {2, 3, 5, 8, 13}) {
    for (const std::string mode : {"linear", "cubic"}) {
      for (const bool exclude : {false, true}) {
        for (const std::string coordinates : {"half_pixel", "align_corners", "asymmetric"}) {
          Attributes attributes = attributes_of(0, size, mode, coordinates);
          attributes.set("exclude_outside", std::int64_t{exclude});
          attributes.set("cubic_a", -0.5);
          const std::vector<float> y = resize(attributes, x);
          const double scale = static_cast<double>(size) / 5;
          for (std::int64_t i = 0; i < size; ++i) {
            const auto at = static_cast<double>(i);
            const double place = coordinates == "half_pixel"   ? (at + 0.5) / scale - 0.5
                                 : coordinates == "asymmetric" ? at / scale
                                                               : at * 4 / static_cast<double>(size - 1);
            EXPECT_NEAR(y[static_cast<std::size_t>(i)], interpolated(x, place, mode, -0.5, exclude), 2e-6)
                << mode << " " << coordinates << " " << size << " " << i;
          }
        }
      }
    }
  }
}

TEST(Resize, GradientAgreesWithDifferencesAlongAnyAxis) {
  for (const TensorType& x : {f32({2, 3, 2, 2}), image({2, 3, 2, 2})}) {
    for (std::int64_t axis = 0; axis < 4; ++axis) {
      for (const std::string mode : {"nearest", "linear", "cubic"}) {
        Probe probe("resize", {x}, attributes_of(axis, 5, mode, "half_pixel"), 1);
        GraphRunner runner(probe.graph());
        probe.randomise(runner, 1.0F, 111);
        probe.expect_gradients(runner, 0.5F, 1e-4);
      }
    }
  }
}

// Two channels of two pixels are stored pixel by pixel; each channel is resized separately.
TEST(Resize, KeepsChannelsApart) {
  Probe probe("resize", {image({1, 2, 1, 2})}, attributes_of(3, 4, "nearest", "half_pixel"), 1);
  GraphRunner runner(probe.graph());
  std::ranges::copy(std::vector{1.0F, 10.0F, 2.0F, 20.0F}, runner.floats(probe.operation().inputs[0]).begin());
  runner.run(probe.operation());
  EXPECT_THAT(runner.floats(probe.operation().outputs[0]), ::testing::ElementsAre(1, 10, 1, 10, 2, 20, 2, 20));
}

TEST(ResizeShape, RefusesUnknownWords) {
  const auto shape = [](const std::string& mode, const std::string& coordinates) {
    return find_operator("resize")->shape({{f32({4})}, {}, attributes_of(0, 8, mode, coordinates)});
  };
  EXPECT_TRUE(shape("linear", "half_pixel"));
  EXPECT_FALSE(shape("area", "half_pixel"));
  EXPECT_FALSE(shape("linear", "tf_crop_and_resize"));
}

}  // namespace
}  // namespace poprun::resize_test
