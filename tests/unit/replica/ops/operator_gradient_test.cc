/// Compares every operator's gradient with central differences of its own forward pass, and its forward pass with a
/// naive computation in this file.
///
/// The differentiated scalar is L = sum(dy * y) for a random dy, summed in double.

#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/ops/builder/builder.h"
#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/probe.h"

namespace poprun {
namespace {

using testing::distinct;
using testing::f32;
using testing::GraphRunner;
using testing::image;
using testing::Probe;

TEST(Relu, GradientAgreesWithDifferences) {
  Probe probe("relu", {f32({3, 11})}, {}, 1);
  GraphRunner runner(probe.graph());
  probe.randomise(runner, 1.0F, 5);
  distinct(runner.floats(probe.operation().inputs[0]), 0.1F, 5);
  probe.expect_gradients(runner, 0.01F, 1e-3);
}

TEST(Relu, KeepsNaN) {
  Probe probe("relu", {f32({2})}, {}, 1);
  GraphRunner runner(probe.graph());
  runner.floats(probe.operation().inputs[0])[0] = std::nanf("");
  runner.floats(probe.operation().inputs[0])[1] = -1;

  runner.run(probe.operation());

  EXPECT_TRUE(std::isnan(runner.floats(probe.operation().outputs[0])[0]));
  EXPECT_EQ(runner.floats(probe.operation().outputs[0])[1], 0.0F);
}

TEST(Reshape, GradientAgreesWithDifferencesAcrossLayouts) {
  Probe probe("reshape", {image({2, 3, 2, 2})}, {{"shape", Shape{2, 12}}, {"layout", std::string{"row-major"}}}, 1);
  GraphRunner runner(probe.graph());
  probe.randomise(runner, 1.0F, 11);
  probe.expect_gradients(runner, 0.5F, 1e-5);
}

TEST(Reshape, FlattensChannelsBeforePixels) {
  Probe probe("reshape", {image({1, 2, 1, 3})}, {{"shape", Shape{1, 6}}, {"layout", std::string{"row-major"}}}, 1);
  GraphRunner runner(probe.graph());
  // The pixels are stored with two channels each: (0,10), (1,11), (2,12).
  std::ranges::copy(std::vector{0.0F, 10.0F, 1.0F, 11.0F, 2.0F, 12.0F},
                    runner.floats(probe.operation().inputs[0]).begin());

  runner.run(probe.operation());

  EXPECT_THAT(runner.floats(probe.operation().outputs[0]),
              ::testing::ElementsAre(0.0F, 1.0F, 2.0F, 10.0F, 11.0F, 12.0F));
}

TEST(Add, GradientAgreesWithDifferences) {
  Probe probe("add", {f32({4, 3}), f32({4, 3})}, {}, 1);
  GraphRunner runner(probe.graph());
  probe.randomise(runner, 1.0F, 13);
  probe.expect_gradients(runner, 0.5F, 1e-5);
}

class SoftmaxCrossEntropy : public ::testing::Test {
 protected:
  SoftmaxCrossEntropy()
      : probe_("softmax_cross_entropy", {f32({4, 5}), {DataType::kI32, {4}, {}}}, {}, 3), runner_(probe_.graph()) {
    probe_.randomise(runner_, 2.0F, 17);
  }
  void set_labels(const std::vector<std::int32_t>& labels) {
    std::memcpy(runner_.bytes(probe_.operation().inputs[1]), labels.data(), labels.size() * sizeof(std::int32_t));
  }
  float output(std::size_t k) { return runner_.floats(probe_.operation().outputs[k])[0]; }

  Probe probe_;
  GraphRunner runner_;
};

TEST_F(SoftmaxCrossEntropy, GradientAgreesWithDifferences) {
  set_labels({0, 4, 2, 2});
  probe_.expect_gradients(runner_, 0.01F, 2e-3);
}

TEST_F(SoftmaxCrossEntropy, LeavesPaddingOutOfLossAndGradient) {
  set_labels({0, -1, 2, -1});
  probe_.expect_gradients(runner_, 0.01F, 2e-3);
  EXPECT_EQ(output(2), 2.0F);
}

TEST_F(SoftmaxCrossEntropy, OfEqualLogitsIsTheLogarithmOfTheClasses) {
  std::ranges::fill(runner_.floats(probe_.operation().inputs[0]), 3.0F);
  set_labels({0, 1, 0, 4});

  runner_.run(probe_.operation());

  EXPECT_FLOAT_EQ(output(0), std::log(5.0F));
  EXPECT_EQ(output(1), 2.0F) << "the first of equal logits is the answer";
  EXPECT_EQ(output(2), 4.0F);
}

TEST_F(SoftmaxCrossEntropy, OfPaddingAloneIsZero) {
  set_labels({-1, -1, -1, -1});

  runner_.run(probe_.operation());

  EXPECT_EQ(output(0), 0.0F);
  EXPECT_EQ(output(2), 0.0F);
}

TEST_F(SoftmaxCrossEntropy, OfSmoothingZeroHasTheSameBits) {
  set_labels({0, -1, 2, 4});
  Operation smoothed = probe_.operation();
  smoothed.attributes.set("smoothing", 0.0);

  runner_.run(probe_.operation());
  const float plain = output(0);
  runner_.run(smoothed);

  EXPECT_EQ(output(0), plain);
}

TEST_F(SoftmaxCrossEntropy, RefusesSmoothingOfOne) {
  for (const double smoothing : {1.0, -0.1}) {
    Operation smoothed = probe_.operation();
    smoothed.attributes.set("smoothing", smoothing);
    const auto shape = find_operator(smoothed.kind)->shape(signature_of(probe_.graph(), smoothed));
    ASSERT_FALSE(shape);
    EXPECT_NE(shape.error().message.find("0 <= smoothing < 1"), std::string::npos) << shape.error().message;
  }
}

TEST(Operators, AllHaveShapeWorkAndNumerics) {
  EXPECT_FALSE(all_operators().empty());
  for (const Operator& op : all_operators()) {
    EXPECT_NE(op.shape, nullptr) << op.kind;
    EXPECT_NE(op.work, nullptr) << op.kind;
    EXPECT_NE(op.numerics, nullptr) << op.kind;
  }
}

TEST(Operators, RefuseShapesThatDoNotFitByName) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}};
  Builder builder(graph, {0, 0}, "");
  const TensorId x = graph.add_tensor({"x", f32({3, 7}), Role::kActivation});
  const TensorId w = graph.add_tensor({"w", f32({5, 8}), Role::kParameter});
  const TensorId b = graph.add_tensor({"b", f32({5}), Role::kParameter});

  builder.add_one("linear", {x, w, b}, {}, "fc");

  ASSERT_FALSE(builder.status());
  EXPECT_EQ(builder.status().error().code, ErrorCode::kUsage);
  EXPECT_EQ(builder.status().error().message,
            "fc: linear needs x f32[...,I], w f32[O,I] and optionally b f32[O]; given: (f32[3,7], "
            "f32[5,8], f32[5])");
}

TEST(Normalize, MovesPlanesToChannelsLast) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}};
  Builder builder(graph, {0, 0}, "");
  const TensorId x = graph.add_tensor({"x", {DataType::kU8, {1, 2, 1, 2}, {}}, Role::kStream});
  const TensorId y = builder.add_one("normalize", {x}, {{"mean", 0.5}, {"deviation", 0.5}}, "y");
  GraphRunner runner(graph);
  const std::vector<std::uint8_t> planes = {0, 255, 51, 204};
  std::memcpy(runner.bytes(x), planes.data(), planes.size());

  runner.run(builder.operations());

  EXPECT_THAT(runner.floats(y),
              ::testing::ElementsAre(::testing::FloatNear(-1, 1e-6F), ::testing::FloatNear(-0.6F, 1e-6F),
                                     ::testing::FloatNear(1, 1e-6F), ::testing::FloatNear(0.6F, 1e-6F)));
}

}  // namespace
}  // namespace poprun
