/// ONNX models that are built here, imported, compiled and run; results are compared with those computed by hand.

#include <cmath>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/tools/onnx_check/onnx_check.h"
#include "tests/unit/replica/onnx_models.h"

namespace poprun::onnx_test {
namespace {

using onnx_import::Constant;
using onnx_import::OnnxModel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::OnnxBuilder;

std::vector<Constant> run(const OnnxBuilder& b, const std::vector<Constant>& inputs) {
  const auto model = OnnxModel::parse(b.bytes());
  EXPECT_TRUE(model) << (model ? "" : model.error().message);
  auto outputs = run_onnx(*model, inputs, "mk2");
  EXPECT_TRUE(outputs) << (outputs ? "" : outputs.error().message);
  return outputs ? *outputs : std::vector<Constant>{};
}

std::string refusal(const OnnxBuilder& b, const std::vector<Constant>& inputs) {
  const auto model = OnnxModel::parse(b.bytes());
  if (!model) {
    return model.error().message;
  }
  const auto outputs = run_onnx(*model, inputs, "mk2");
  return outputs ? "accepted" : outputs.error().message;
}

TEST(Onnx, APerceptronGivesWhatItsFormulaGives) {
  const auto y = run(testing::perceptron(), {Constant::of_reals({1, 2}, {1, 2})});

  // h = [0.5 + 2, -1 + 0.5 + 0.5, 2 - 1 - 1] = [2.5, 0, 0]; z = [2.5 + 0.1, -2.5 - 0.1].
  ASSERT_EQ(y.size(), 1U);
  EXPECT_NEAR(y[0].reals.at(0), 1 / (1 + std::exp(-5.2)), 1e-5);
  EXPECT_NEAR(y[0].reals.at(1), 1 / (1 + std::exp(5.2)), 1e-5);
}

TEST(Onnx, ShapeArithmeticIsKnownAtImport) {
  // Reshape to [Shape(x)[0], -1], which is how exporters write a flattening.
  OnnxBuilder b;
  b.input("x", {-1, 2, 3}).output("y", {-1, 6});
  b.integers("zero", {}, {0}).integers("axes", {1}, {0}).integers("rest", {1}, {-1});
  b.node("Shape", {"x"}, {"s"});
  b.node("Gather", {"s", "zero"}, {"n"});
  b.node("Unsqueeze", {"n", "axes"}, {"n1"});
  OnnxBuilder::set_integer(b.node("Concat", {"n1", "rest"}, {"target"}), "axis", 0);
  b.node("Reshape", {"x", "target"}, {"y"});
  std::vector<float> x(24);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i);
  }

  const auto y = run(b, {Constant::of_reals(x, {4, 2, 3})});

  ASSERT_EQ(y.size(), 1U);
  EXPECT_EQ(y[0].shape, (Shape{4, 6}));
  EXPECT_EQ(y[0].reals, x);
}

TEST(Onnx, ResizeRoundsSizesInFloat32) {
  // In double arithmetic, ten times the float nearest to 0.7 is below 7.
  OnnxBuilder b;
  b.input("x", {1, 1, 10}).output("y", {1, 1, 7}).weight("scales", {3}, {1, 1, 0.7F});
  b.node("Resize", {"x", "", "scales"}, {"y"});

  const auto y = run(b, {Constant::of_reals({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 1, 10})});

  ASSERT_EQ(y.size(), 1U);
  EXPECT_EQ(y[0].shape, (Shape{1, 1, 7}));
}

TEST(Onnx, ASliceWithAStepBelowZeroReverses) {
  OnnxBuilder b;
  b.input("x", {5}).output("y", {3});
  b.integers("starts", {1}, {-1}).integers("ends", {1}, {-1000}).integers("axes", {1}, {0});
  b.integers("steps", {1}, {-2});
  b.node("Slice", {"x", "starts", "ends", "axes", "steps"}, {"y"});

  const auto y = run(b, {Constant::of_reals({0, 1, 2, 3, 4}, {5})});

  ASSERT_EQ(y.size(), 1U);
  EXPECT_THAT(y[0].reals, ElementsAre(4, 2, 0));
}

constexpr std::int32_t kInt64 = ::onnx::TensorProto::INT64;

/// Returns the output of one node on integers x [2,3] and `more`, after `set` has completed the node.
Constant of_integers(const std::string& op, const OnnxBuilder& more, const std::vector<std::string>& inputs,
                     const Shape& shape, const std::function<void(::onnx::NodeProto&)>& set = nullptr) {
  OnnxBuilder b = more;
  b.input("x", {2, 3}, kInt64).output("y", shape, kInt64);
  auto& node = b.node(op, inputs, {"y"});
  if (set) {
    set(node);
  }
  const auto y = run(b, {Constant::of_integers({5, -7, 2, 5, 0, -1}, {2, 3})});
  return y.empty() ? Constant{} : y[0];
}

TEST(Onnx, IntegersAreMovedMultipliedAndCompared) {
  const auto axis_1 = [](::onnx::NodeProto& node) { OnnxBuilder::set_integer(node, "axis", 1); };
  OnnxBuilder b(16);
  b.integers("at", {2}, {-1, 0}).integers("each", {2, 1}, {2, 1}).integers("pads", {4}, {0, 1, 0, 0});
  b.integers("matrix", {3, 1}, {1, 2, 3}).integers("three", {}, {3}).integers("powers", {3}, {2, 0, 3});
  b.integers("corners", {2, 2}, {1, 2, 0, 0});
  EXPECT_THAT(of_integers("Gather", b, {"x", "at"}, {2, 2}, axis_1).all_integers(), ElementsAre(2, 5, -1, 5));
  EXPECT_THAT(of_integers("GatherElements", b, {"x", "each"}, {2, 1}, axis_1).all_integers(), ElementsAre(2, 0));
  EXPECT_THAT(of_integers("GatherND", b, {"x", "corners"}, {2}).all_integers(), ElementsAre(-1, 5));
  EXPECT_THAT(of_integers("Pad", b, {"x", "pads"}, {2, 4}).all_integers(), ElementsAre(0, 5, -7, 2, 0, 5, 0, -1));
  EXPECT_THAT(of_integers("MatMul", b, {"x", "matrix"}, {2, 1}).all_integers(), ElementsAre(-3, 2));
  EXPECT_THAT(of_integers("ArgMax", b, {"x"}, {1, 3}).all_integers(), ElementsAre(0, 1, 0));
  EXPECT_THAT(of_integers("Mod", b, {"x", "three"}, {2, 3}).all_integers(), ElementsAre(2, 2, 2, 2, 0, 2));
  EXPECT_THAT(of_integers("Pow", b, {"x", "powers"}, {2, 3}).all_integers(), ElementsAre(25, 1, 8, 25, 1, -1));
}

TEST(Onnx, TheSmallestOfEqualElementsAreTheFirst) {
  OnnxBuilder b;
  b.input("x", {4, 2}).output("y", {3, 2}).output("at", {3, 2}, kInt64).integers("k", {1}, {3});
  auto& node = b.node("TopK", {"x", "k"}, {"y", "at"});
  OnnxBuilder::set_integer(node, "axis", 0);
  OnnxBuilder::set_integer(node, "largest", 0);
  const auto y = run(b, {Constant::of_reals({1, 3, 0, 2, 1, 2, 0, 2}, {4, 2})});
  ASSERT_EQ(y.size(), 2U);
  EXPECT_THAT(y[0].reals, ElementsAre(0, 2, 0, 2, 1, 2));
  EXPECT_THAT(y[1].all_integers(), ElementsAre(1, 1, 3, 2, 0, 3));
}

TEST(Onnx, ARemainderHasTheSignThatFmodSays) {
  for (const bool fmod : {false, true}) {
    OnnxBuilder b;
    b.output("y", {2}, kInt64).integers("a", {2}, {-7, 7}).integers("b", {2}, {3, -3});
    OnnxBuilder::set_integer(b.node("Mod", {"a", "b"}, {"y"}), "fmod", fmod ? 1 : 0);
    const auto y = run(b, {});
    ASSERT_EQ(y.size(), 1U);
    EXPECT_THAT(y[0].all_integers(), fmod ? ElementsAre(-1, 1) : ElementsAre(2, -2));
  }
}

TEST(Onnx, RealsTakePowersOfIntegers) {
  OnnxBuilder b;
  b.input("x", {3}).output("y", {3}).integers("e", {3}, {3, 0, -1});
  b.node("Pow", {"x", "e"}, {"y"});

  const auto y = run(b, {Constant::of_reals({-2, 5, 4}, {3})});

  ASSERT_EQ(y.size(), 1U);
  EXPECT_THAT(y[0].reals, ElementsAre(-8, 1, 0.25F));
}

TEST(Onnx, AResponseOfAMatrixIsNormalisedOverItsColumns) {
  OnnxBuilder b;
  b.input("x", {1, 2}).output("y", {1, 2});
  OnnxBuilder::set_integer(b.node("LRN", {"x"}, {"y"}), "size", 3);

  const auto y = run(b, {Constant::of_reals({30, 40}, {1, 2})});

  // x / (1 + 1e-4 / 3 * (900 + 1600))^0.75
  ASSERT_EQ(y.size(), 1U);
  EXPECT_NEAR(y[0].reals.at(0), 30 / std::pow(1 + 2500e-4 / 3, 0.75), 1e-4);
  EXPECT_NEAR(y[0].reals.at(1), 40 / std::pow(1 + 2500e-4 / 3, 0.75), 1e-4);
}

TEST(Onnx, VolumesArePooled) {
  // Depth 0 has the values 1 to 4 and depth 1 has 5 to 8. Means do not count the padding before them.
  for (const bool mean : {false, true}) {
    OnnxBuilder b;
    b.input("x", {1, 1, 2, 2, 2}).output("y", {1, 1, 2, 1, 1});
    auto& node = b.node(mean ? "AveragePool" : "MaxPool", {"x"}, {"y"});
    OnnxBuilder::set_integers(node, "kernel_shape", {2, 2, 2});
    OnnxBuilder::set_integers(node, "pads", {1, 0, 0, 0, 0, 0});
    const auto y = run(b, {Constant::of_reals({1, 2, 3, 4, 5, 6, 7, 8}, {1, 1, 2, 2, 2})});
    ASSERT_EQ(y.size(), 1U);
    EXPECT_EQ(y[0].shape, (Shape{1, 1, 2, 1, 1}));
    EXPECT_THAT(y[0].reals, mean ? ElementsAre(2.5F, 4.5F) : ElementsAre(4.0F, 8.0F));
  }
}

TEST(Onnx, PaddingBehindTheLastWindowMayBeAsWideAsOne) {
  OnnxBuilder b;  // This is how ceil_mode was spelled before opset 10.
  b.input("x", {1, 1, 4}).output("y", {1, 1, 2});
  auto& node = b.node("MaxPool", {"x"}, {"y"});
  OnnxBuilder::set_integers(node, "kernel_shape", {2});
  OnnxBuilder::set_integers(node, "strides", {3});
  OnnxBuilder::set_integers(node, "pads", {0, 2});
  const auto y = run(b, {Constant::of_reals({3, 1, 4, 1}, {1, 1, 4})});
  ASSERT_EQ(y.size(), 1U);
  EXPECT_THAT(y[0].reals, ElementsAre(3, 1));
}

TEST(Onnx, PlacesOfAConstantsElementsAreKnown) {
  OnnxBuilder b;
  b.output("y", {2, 2}, kInt64).integers("x", {2, 3}, {0, 4, 0, 0, 0, 5});
  b.node("NonZero", {"x"}, {"y"});
  const auto y = run(b, {});
  ASSERT_EQ(y.size(), 1U);
  EXPECT_THAT(y[0].all_integers(), ElementsAre(0, 1, 1, 2));
}

/// Returns a model of an operator on x [4,5] with constant indices.
OnnxBuilder indexed(const std::string& op, const std::vector<std::int64_t>& shape,
                    const std::vector<std::int64_t>& indices) {
  OnnxBuilder b(16);
  b.input("x", {4, 5}).output("y", {});
  b.integers("i", shape, indices);
  const bool scatters = op.starts_with("Scatter");
  if (scatters) {
    b.weight("u", op == "ScatterND" ? std::vector<std::int64_t>{1, 5} : shape,
             std::vector<float>(op == "ScatterND" ? 5 : 2, 1.0F));
  }
  b.node(op, scatters ? std::vector<std::string>{"x", "i", "u"} : std::vector<std::string>{"x", "i"}, {"y"})
      .set_name("node");
  return b;
}

TEST(Onnx, KnownIndicesOutOfRangeAreRefusedWithNodeIndexAndRange) {
  const std::vector<Constant> x = {Constant::of_reals(std::vector<float>(20, 1.0F), {4, 5})};
  EXPECT_EQ(refusal(indexed("Gather", {2}, {0, 4}), x),
            "Gather 'node': index 4 in element 1 of 'i' is outside the range -4 to 3");
  EXPECT_EQ(refusal(indexed("Gather", {1}, {-5}), x),
            "Gather 'node': index -5 in element 0 of 'i' is outside the range -4 to 3");
  EXPECT_EQ(refusal(indexed("GatherElements", {1, 2}, {3, -6}), x),
            "GatherElements 'node': index -6 in element 1 of 'i' is outside the range -4 to 3");
  EXPECT_EQ(refusal(indexed("GatherND", {1, 2}, {3, 5}), x),
            "GatherND 'node': index 5 in element 1 of 'i' is outside the range -5 to 4");
  EXPECT_EQ(refusal(indexed("ScatterElements", {1, 2}, {0, 9}), x),
            "ScatterElements 'node': index 9 in element 1 of 'i' is outside the range -4 to 3");
  EXPECT_EQ(refusal(indexed("ScatterND", {1, 1}, {4}), x),
            "ScatterND 'node': index 4 in element 0 of 'i' is outside the range -4 to 3");
  for (const char* op : {"Gather", "GatherND", "ScatterND"}) {
    EXPECT_EQ(refusal(indexed(op, {1, 1}, {-4}), x), "accepted") << op;
  }
}

TEST(Onnx, AnAxisOutOfRangeIsRefusedWithTheRange) {
  OnnxBuilder b;
  b.input("x", {4, 5}).output("y", {}).integers("i", {1}, {0});
  OnnxBuilder::set_integer(b.node("Gather", {"x", "i"}, {"y"}), "axis", 2);
  EXPECT_EQ(refusal(b, {Constant::of_reals(std::vector<float>(20, 1.0F), {4, 5})}),
            "Gather 'y': axis 2 is out of range for a tensor of rank 2, which has axes -2 to 1");
}

TEST(Onnx, AnIndexOfTheDataOutOfRangeEndsTheRun) {
  OnnxBuilder b;
  b.input("x", {4, 5}).input("i", {3}, ::onnx::TensorProto::INT64).output("y", {3, 5});
  b.node("Gather", {"x", "i"}, {"y"});
  const std::string why =
      refusal(b, {Constant::of_reals(std::vector<float>(20, 1.0F), {4, 5}), Constant::of_integers({0, 3, 7}, {3})});
  EXPECT_THAT(why, HasSubstr("index 7 in element 2 of 'i' i32[3] is out of range for gather 'y', "
                             "which accepts indices -4 to 3 of 'x' f32[4,5]"));
}

TEST(Onnx, AGraphWithoutOutputsIsRefusedAsData) {
  OnnxBuilder b;
  b.input("x", {2});
  b.node("Relu", {"x"}, {"y"});
  const auto model = OnnxModel::parse(b.bytes());
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kData);
  EXPECT_THAT(model.error().message, HasSubstr("no outputs"));
}

TEST(Onnx, WhatANodeCannotDoIsNamedWithWhatIsThere) {
  OnnxBuilder conv;
  conv.input("x", {1, 1, 1, 2, 2, 2}).output("y", {1, 1, 1, 2, 2, 2}).weight("w", {1, 1, 1, 1, 1, 1}, {1});
  conv.node("ConvTranspose", {"x", "w"}, {"y"});
  EXPECT_THAT(refusal(conv, {Constant::of_reals(std::vector<float>(8), {1, 1, 1, 2, 2, 2})}),
              HasSubstr("ConvTranspose 'y': not supported: an input of rank 6; available: sequences"));
  OnnxBuilder pad(10);
  pad.input("x", {2}).output("y", {4});
  auto& node = pad.node("Pad", {"x"}, {"y"});
  OnnxBuilder::set_integers(node, "pads", {1, 1});
  OnnxBuilder::set_text(node, "mode", "mirror");
  EXPECT_THAT(refusal(pad, {Constant::of_reals({1, 2}, {2})}),
              HasSubstr("Pad 'y': not supported: mode = mirror; available: constant, reflect, edge, wrap"));
}

TEST(Onnx, AnOperatorThatIsMissingIsNamedWithThoseThatAreThere) {
  OnnxBuilder b;
  b.input("x", {2}).output("y", {2});
  b.node("Det", {"x"}, {"y"});

  const std::string why = refusal(b, {Constant::of_reals({1, 2}, {2})});

  EXPECT_THAT(why, HasSubstr("not supported: Det; available: Abs,"));
}

TEST(Onnx, ANewerOpsetIsRefused) {
  OnnxBuilder b(29);
  b.input("x", {2}).output("y", {2});
  b.node("Relu", {"x"}, {"y"});

  EXPECT_EQ(refusal(b, {}),
            "opset 29 is newer than 28, the newest supported; export the model with that opset: "
            "torch.onnx.export(..., opset_version=28)");
}

TEST(Onnx, BytesThatAreNoModelAreRefusedAsData) {
  const auto model = OnnxModel::parse("this is not an ONNX model");

  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kData);
}

}  // namespace
}  // namespace poprun::onnx_test
