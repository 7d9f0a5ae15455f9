/// ONNX operators against values computed by hand: sampling, placement, spectra, quantisation, loops and sequences.

#include <cmath>
#include <functional>
#include <numbers>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/tools/onnx_check/onnx_check.h"
#include "tests/unit/replica/onnx_models.h"

namespace poprun::onnx_operators_test {
namespace {

using onnx_import::Constant;
using onnx_import::OnnxModel;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using testing::OnnxBuilder;
using ::testing::Pointwise;
using Proto = ::onnx::TensorProto;

Result<std::vector<Constant>> outputs_of(const OnnxBuilder& b, const std::vector<Constant>& inputs) {
  const auto model = OnnxModel::parse(b.bytes());
  if (!model) {
    return tl::unexpected(model.error());
  }
  return run_onnx(*model, inputs, "mk2");
}

/// Returns the reals of output 0.
std::vector<float> reals(const OnnxBuilder& b, const std::vector<Constant>& inputs) {
  const auto outputs = outputs_of(b, inputs);
  EXPECT_TRUE(outputs) << outputs.error().message;
  return outputs ? outputs->at(0).reals : std::vector<float>{};
}

std::string refusal(const OnnxBuilder& b, const std::vector<Constant>& inputs) {
  const auto outputs = outputs_of(b, inputs);
  return outputs ? "accepted" : outputs.error().message;
}

Constant counted(const Shape& shape, float from = 1) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) {
    n *= d;
  }
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i) {
    values.push_back(from + static_cast<float>(i));
  }
  return Constant::of_reals(std::move(values), shape);
}

std::vector<std::int64_t> dims(const Shape& shape) {
  return shape;
}

/// Returns x [4] with two updates, scattered with a reduction to places 1, 1 and 3.
OnnxBuilder scattering(const std::string& reduction) {
  OnnxBuilder b(18);
  b.input("x", {4}).output("y", {4}).integers("i", {3}, {1, 1, -1}).weight("u", {3}, {5, -2, 0.5F});
  OnnxBuilder::set_text(b.node("ScatterElements", {"x", "i", "u"}, {"y"}), "reduction", reduction);
  return b;
}

TEST(OnnxOperators, ScatterReducesWithWhatWasThere) {
  const std::vector<Constant> x = {Constant::of_reals({1, 2, 3, 4}, {4})};
  EXPECT_THAT(reals(scattering("add"), x), ElementsAre(1, 5, 3, 4.5F));
  EXPECT_THAT(reals(scattering("mul"), x), ElementsAre(1, -20, 3, 2));
  EXPECT_THAT(reals(scattering("max"), x), ElementsAre(1, 5, 3, 4));
  EXPECT_THAT(reals(scattering("min"), x), ElementsAre(1, -2, 3, 0.5F));
  EXPECT_THAT(refusal(scattering("mean"), x), HasSubstr("reduction = mean; available: none, add, mul, min, max"));
}

TEST(OnnxOperators, AGridOfThePixelsThemselvesGivesTheImage) {
  OnnxBuilder b(20);
  b.input("x", {1, 2, 2, 3}).output("y", {1, 2, 2, 3});
  b.weight("theta", {1, 2, 3}, {1, 0, 0, 0, 1, 0}).integers("size", {4}, {1, 2, 2, 3});
  b.node("AffineGrid", {"theta", "size"}, {"grid"});
  b.node("GridSample", {"x", "grid"}, {"y"});
  EXPECT_THAT(reals(b, {counted({1, 2, 2, 3})}), Pointwise(FloatNear(1e-5F), {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
}

TEST(OnnxOperators, DeformableConvolutionWithoutOffsetsIsConvolution) {
  const auto convolution = [](bool deformable) {
    OnnxBuilder b(19);
    b.input("x", {1, 2, 4, 4}).output("y", {1, 3, 3, 3});
    std::vector<float> w(24);
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] = static_cast<float>(i * 7 % 5) - 2;
    }
    b.weight("w", {3, 2, 2, 2}, w).weight("zero", {1, 8, 3, 3}, std::vector<float>(72, 0));
    if (deformable) {
      b.node("DeformConv", {"x", "w", "zero"}, {"y"});
    } else {
      b.node("Conv", {"x", "w"}, {"y"});
    }
    return b;
  };
  const std::vector<Constant> x = {counted({1, 2, 4, 4}, -7)};
  EXPECT_THAT(reals(convolution(true), x), Pointwise(FloatNear(1e-4F), reals(convolution(false), x)));
}

TEST(OnnxOperators, TransposedConvolutionOfAVolumeSpreadsItsKernel) {
  OnnxBuilder b(11);
  b.input("x", {1, 1, 2, 1, 1}).output("y", {1, 1, 4, 1, 2});
  b.weight("w", {1, 1, 3, 1, 2}, {1, 2, 3, 4, 5, 6}).weight("bias", {1}, {100});
  auto& node = b.node("ConvTranspose", {"x", "w", "bias"}, {"y"});
  OnnxBuilder::set_integers(node, "strides", {2, 1, 1});
  OnnxBuilder::set_integers(node, "pads", {1, 0, 0, 0, 0, 0});
  // x = 1, 10 at depths 0 and 2 of the output, of which the first depth is cut off.
  EXPECT_THAT(reals(b, {Constant::of_reals({1, 10}, {1, 1, 2, 1, 1})}),
              ElementsAre(103, 104, 115, 126, 130, 140, 150, 160));
}

TEST(OnnxOperators, ColumnsAddUpToHowOftenEachPixelIsCovered) {
  OnnxBuilder b(18);
  b.input("x", {1, 4, 4}).output("y", {1, 1, 3, 3});
  b.integers("image", {2}, {3, 3}).integers("block", {2}, {2, 2});
  b.node("Col2Im", {"x", "image", "block"}, {"y"});
  EXPECT_THAT(reals(b, {Constant::of_reals(std::vector<float>(16, 1), {1, 4, 4})}),
              ElementsAre(1, 2, 1, 2, 4, 2, 1, 2, 1));
}

TEST(OnnxOperators, PoolsByNormAddPowersInEachWindow) {
  OnnxBuilder b(11);
  b.input("x", {1, 1, 4}).output("y", {1, 1, 3});
  auto& node = b.node("LpPool", {"x"}, {"y"});
  OnnxBuilder::set_integers(node, "kernel_shape", {2});
  OnnxBuilder::set_integers(node, "strides", {2});
  OnnxBuilder::set_integers(node, "pads", {1, 1});
  EXPECT_THAT(reals(b, {Constant::of_reals({-3, 3, -4, 5}, {1, 1, 4})}), Pointwise(FloatNear(1e-5F), {3, 5, 5}));
}

TEST(OnnxOperators, RunningProductsMayExcludeTheirLastFactorAndRunBackwards) {
  const auto product = [](std::int64_t exclusive, std::int64_t reverse) {
    OnnxBuilder b(26);
    b.input("x", {3}).output("y", {3}).integers("axis", {}, {0});
    auto& node = b.node("CumProd", {"x", "axis"}, {"y"});
    OnnxBuilder::set_integer(node, "exclusive", exclusive);
    OnnxBuilder::set_integer(node, "reverse", reverse);
    return b;
  };
  const std::vector<Constant> x = {Constant::of_reals({2, 3, 4}, {3})};
  EXPECT_THAT(reals(product(0, 0), x), ElementsAre(2, 6, 24));
  EXPECT_THAT(reals(product(1, 0), x), ElementsAre(1, 2, 6));
  EXPECT_THAT(reals(product(0, 1), x), ElementsAre(24, 12, 4));
  EXPECT_THAT(reals(product(1, 1), x), ElementsAre(12, 4, 1));
}

TEST(OnnxOperators, QuantisationRoundsToEvenAndSaturates) {
  OnnxBuilder b(13);
  b.input("x", {6}).output("y", {6}).weight("scale", {}, {0.5F});
  auto& zero = *b.graph().add_initializer();
  zero.set_name("zero");
  zero.set_data_type(Proto::INT8);
  zero.add_int32_data(1);
  b.node("QuantizeLinear", {"x", "scale", "zero"}, {"q"});
  b.node("DequantizeLinear", {"q", "scale", "zero"}, {"y"});
  EXPECT_THAT(reals(b, {Constant::of_reals({0, 0.25F, 0.75F, -0.3F, 1000, -1000}, {6})}),
              ElementsAre(0, 0, 1, -0.5F, 63, -64.5F));
}

TEST(OnnxOperators, QuantisedIntegersAreAvailableAsSuch) {
  OnnxBuilder b(13);
  b.input("x", {2}).output("y", {2}, Proto::UINT8).weight("scale", {}, {2});
  b.node("QuantizeLinear", {"x", "scale"}, {"y"});
  const auto y = outputs_of(b, {Constant::of_reals({7, -7}, {2})});
  ASSERT_TRUE(y) << y.error().message;
  EXPECT_THAT(y->at(0).integers, ElementsAre(4, 0));  // 3.5 is rounded to even.
}

TEST(OnnxOperators, BitsOfNarrowIntegersStayWithinTheirType) {
  OnnxBuilder b(18);
  b.input("x", {3}, Proto::UINT8).input("n", {3}, Proto::UINT8);
  b.output("left", {3}, Proto::UINT8).output("not", {3}, Proto::UINT8).output("xor", {3}, Proto::UINT8);
  OnnxBuilder::set_text(b.node("BitShift", {"x", "n"}, {"left"}), "direction", "LEFT");
  b.node("BitwiseNot", {"x"}, {"not"});
  b.node("BitwiseXor", {"x", "n"}, {"xor"});
  Constant x = Constant::of_integers({1, 129, 255}, {3});
  Constant n = Constant::of_integers({2, 1, 4}, {3});
  x.element = n.element = Proto::UINT8;
  const auto y = outputs_of(b, {x, n});
  ASSERT_TRUE(y) << y.error().message;
  EXPECT_THAT(y->at(0).integers, ElementsAre(4, 2, 240));
  EXPECT_THAT(y->at(1).integers, ElementsAre(254, 126, 0));
  EXPECT_THAT(y->at(2).integers, ElementsAre(3, 128, 251));
}

TEST(OnnxOperators, ACosineHasTwoLines) {
  OnnxBuilder b(17);
  b.input("x", {1, 8, 1}).output("y", {1, 8, 2});
  OnnxBuilder::set_integer(b.node("DFT", {"x"}, {"y"}), "axis", 1);
  std::vector<float> x;
  for (int t = 0; t < 8; ++t) {
    x.push_back(static_cast<float>(std::cos(2 * std::numbers::pi * 2 * t / 8)));
  }
  EXPECT_THAT(reals(b, {Constant::of_reals(x, {1, 8, 1})}),
              Pointwise(FloatNear(1e-5F), {0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0}));
}

TEST(OnnxOperators, SequencesAreReversedUpToTheirLengths) {
  OnnxBuilder b(10);
  b.input("x", {2, 3}).input("n", {2}, Proto::INT64).output("y", {2, 3});
  auto& node = b.node("ReverseSequence", {"x", "n"}, {"y"});
  OnnxBuilder::set_integer(node, "batch_axis", 0);
  OnnxBuilder::set_integer(node, "time_axis", 1);
  EXPECT_THAT(reals(b, {counted({2, 3}), Constant::of_integers({3, 2}, {2})}), ElementsAre(3, 2, 1, 5, 4, 6));
}

TEST(OnnxOperators, ACacheIsWrittenFromEachIndexOn) {
  OnnxBuilder b(24);
  b.input("past", {2, 3, 1}).input("new", {2, 2, 1}).input("at", {2}, Proto::INT64).output("y", {2, 3, 1});
  OnnxBuilder::set_text(b.node("TensorScatter", {"past", "new", "at"}, {"y"}), "mode", "circular");
  EXPECT_THAT(reals(b, {counted({2, 3, 1}), counted({2, 2, 1}, 11), Constant::of_integers({1, 2}, {2})}),
              ElementsAre(1, 11, 12, 14, 5, 13));
}

TEST(OnnxOperators, ConditionsAndDiagonalsPickElements) {
  OnnxBuilder b(13);
  b.input("x", {2, 2}).output("y", {1});
  auto& condition = *b.graph().add_initializer();
  condition.set_name("condition");
  condition.set_data_type(Proto::BOOL);
  condition.add_dims(2);
  condition.add_int32_data(0);
  condition.add_int32_data(1);
  OnnxBuilder::set_text(b.node("Einsum", {"x"}, {"d"}), "equation", "ii->i");
  b.node("Compress", {"d", "condition"}, {"y"});
  EXPECT_THAT(reals(b, {counted({2, 2})}), ElementsAre(4));
}

/// Returns a Loop over x that carries a sum and collects its values, `trips` times or while it goes on.
OnnxBuilder loop(std::int64_t trips) {
  OnnxBuilder b(13);
  b.input("x", {3}).output("total", {1}).output("all", {-1, 1});
  b.integers("trips", {}, {trips}).weight("start", {1}, {0.5F}).integers("one", {}, {1});
  auto& node = b.node("Loop", {"trips", "", "start"}, {"total", "all"});
  OnnxBuilder body(13);
  body.input("i", {}, Proto::INT64).input("goes", {}, Proto::BOOL).input("sum", {1});
  body.output("goes_on", {}, Proto::BOOL).output("next", {1}).output("now", {1});
  body.node("Identity", {"goes"}, {"goes_on"});
  body.integers("zero", {1}, {0});
  body.node("Unsqueeze", {"i", "zero"}, {"begin"});
  body.node("Add", {"i", "one"}, {"after"});
  body.node("Unsqueeze", {"after", "zero"}, {"end"});
  body.node("Slice", {"x", "begin", "end"}, {"row"});
  body.node("Add", {"sum", "row"}, {"next"});
  body.node("Identity", {"next"}, {"now"});
  auto& attribute = *node.add_attribute();
  attribute.set_name("body");
  attribute.set_type(::onnx::AttributeProto::GRAPH);
  *attribute.mutable_g() = body.graph();
  return b;
}

TEST(OnnxOperators, LoopsAreUnrolled) {
  const auto y = outputs_of(loop(3), {counted({3})});
  ASSERT_TRUE(y) << y.error().message;
  EXPECT_THAT(y->at(0).reals, ElementsAre(6.5F));
  EXPECT_THAT(y->at(1).reals, ElementsAre(1.5F, 3.5F, 6.5F));
  EXPECT_EQ(y->at(1).shape, dims({3, 1}));
  EXPECT_THAT(refusal(loop(1025), {Constant::of_reals(std::vector<float>(1025, 1), {1025})}),
              HasSubstr("more than 1024 steps"));
}

TEST(OnnxOperators, ALoopWhoseConditionDependsOnTheDataIsRefused) {
  OnnxBuilder b = loop(3);
  auto& body = *b.graph().mutable_node(0)->mutable_attribute(0)->mutable_g();
  body.mutable_node(0)->set_op_type("Cast");
  body.mutable_node(0)->set_input(0, "sum");
  OnnxBuilder::set_integer(*body.mutable_node(0), "to", Proto::BOOL);
  EXPECT_THAT(refusal(b, {counted({3})}),
              HasSubstr("a condition that depends on the data; export the model with a fixed number of steps"));
}

TEST(OnnxOperators, ScansRunOverRowsInEitherDirection) {
  OnnxBuilder b(13);
  b.input("x", {3, 2}).output("last", {2}).output("sums", {2, 3});
  b.weight("start", {2}, {0, 1});
  auto& node = b.node("Scan", {"start", "x"}, {"last", "sums"});
  OnnxBuilder::set_integer(node, "num_scan_inputs", 1);
  OnnxBuilder::set_integers(node, "scan_input_directions", {1});
  OnnxBuilder::set_integers(node, "scan_output_axes", {1});
  OnnxBuilder body(13);
  body.input("sum", {2}).input("row", {2}).output("next", {2}).output("now", {2});
  body.node("Add", {"sum", "row"}, {"next"});
  body.node("Identity", {"next"}, {"now"});
  auto& attribute = *node.add_attribute();
  attribute.set_name("body");
  attribute.set_type(::onnx::AttributeProto::GRAPH);
  *attribute.mutable_g() = body.graph();
  const auto y = outputs_of(b, {counted({3, 2})});
  ASSERT_TRUE(y) << y.error().message;
  EXPECT_THAT(y->at(0).reals, ElementsAre(9, 13));
  EXPECT_THAT(y->at(1).reals, ElementsAre(5, 8, 9, 7, 11, 13));
}

TEST(OnnxOperators, SequencesOfTensorsAreSplitAndJoined) {
  OnnxBuilder b(13);
  b.input("x", {3, 2}).output("y", {2, 2}).output("n", {}, Proto::INT64);
  b.integers("last", {}, {-1}).integers("first", {}, {0});
  OnnxBuilder::set_integer(b.node("SplitToSequence", {"x"}, {"rows"}), "keepdims", 0);
  b.node("SequenceLength", {"rows"}, {"n"});
  b.node("SequenceAt", {"rows", "last"}, {"a"});
  b.node("SequenceAt", {"rows", "first"}, {"b"});
  b.node("SequenceConstruct", {"a"}, {"one"});
  b.node("SequenceInsert", {"one", "b"}, {"two"});
  auto& join = b.node("ConcatFromSequence", {"two"}, {"y"});
  OnnxBuilder::set_integer(join, "axis", 0);
  OnnxBuilder::set_integer(join, "new_axis", 1);
  const auto y = outputs_of(b, {counted({3, 2})});
  ASSERT_TRUE(y) << y.error().message;
  EXPECT_THAT(y->at(0).reals, ElementsAre(5, 6, 1, 2));
  EXPECT_THAT(y->at(1).integers, ElementsAre(3));
}

TEST(OnnxOperators, RandomNumbersAreRefusedWhereAFileExpectsItsOwn) {
  OnnxBuilder b(15);
  b.input("p", {3}).output("y", {3});
  b.node("Bernoulli", {"p"}, {"y"});
  EXPECT_THAT(refusal(b, {Constant::of_reals({0, 0.5F, 1}, {3})}),
              HasSubstr("random numbers, which cannot be those of another generator"));
}

}  // namespace
}  // namespace poprun::onnx_operators_test
