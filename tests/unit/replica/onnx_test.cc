/// ONNX models built here, imported, compiled and run, against results computed by hand.

#include <cmath>
#include <cstring>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_runner.h"
#include "onnx_models.h"
#include "replica/base/half.h"
#include "replica/compiler/passes/passes.h"
#include "replica/compiler/precision/precision.h"
#include "replica/models/onnx/job_model.h"
#include "replica/tools/onnx_check/onnx_check.h"

namespace poprun {
namespace {

using onnx_import::Constant;
using onnx_import::OnnxModel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::OnnxBuilder;
using ::testing::UnorderedElementsAre;

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
  // As doubles, the float nearest to 0.7 times 10 is below 7.
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

/// The output of one node on integers x [2,3] and `more`, after `set` has completed the node.
Constant of_integers(const std::string& op, const OnnxBuilder& more,
                     const std::vector<std::string>& inputs, const Shape& shape,
                     const std::function<void(::onnx::NodeProto&)>& set = nullptr) {
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
  b.integers("at", {2}, {-1, 0})
      .integers("each", {2, 1}, {2, 1})
      .integers("pads", {4}, {0, 1, 0, 0});
  b.integers("matrix", {3, 1}, {1, 2, 3})
      .integers("three", {}, {3})
      .integers("powers", {3}, {2, 0, 3});
  b.integers("corners", {2, 2}, {1, 2, 0, 0});
  EXPECT_THAT(of_integers("Gather", b, {"x", "at"}, {2, 2}, axis_1).all_integers(),
              ElementsAre(2, 5, -1, 5));
  EXPECT_THAT(of_integers("GatherElements", b, {"x", "each"}, {2, 1}, axis_1).all_integers(),
              ElementsAre(2, 0));
  EXPECT_THAT(of_integers("GatherND", b, {"x", "corners"}, {2}).all_integers(), ElementsAre(-1, 5));
  EXPECT_THAT(of_integers("Pad", b, {"x", "pads"}, {2, 4}).all_integers(),
              ElementsAre(0, 5, -7, 2, 0, 5, 0, -1));
  EXPECT_THAT(of_integers("MatMul", b, {"x", "matrix"}, {2, 1}).all_integers(), ElementsAre(-3, 2));
  EXPECT_THAT(of_integers("ArgMax", b, {"x"}, {1, 3}).all_integers(), ElementsAre(0, 1, 0));
  EXPECT_THAT(of_integers("Mod", b, {"x", "three"}, {2, 3}).all_integers(),
              ElementsAre(2, 2, 2, 2, 0, 2));
  EXPECT_THAT(of_integers("Pow", b, {"x", "powers"}, {2, 3}).all_integers(),
              ElementsAre(25, 1, 8, 25, 1, -1));
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
  // Depths 0 and 1 are 1 to 4 and 5 to 8; padding before them does not count in any mean.
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

/// An operator on x [4,5] whose indices are known.
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
  b.node(op,
         scatters ? std::vector<std::string>{"x", "i", "u"} : std::vector<std::string>{"x", "i"},
         {"y"})
      .set_name("node");
  return b;
}

TEST(Onnx, KnownIndicesOutOfRangeAreRefusedWithNodeIndexAndRange) {
  const std::vector<Constant> x = {Constant::of_reals(std::vector<float>(20, 1.0F), {4, 5})};
  EXPECT_EQ(refusal(indexed("Gather", {2}, {0, 4}), x),
            "Gather 'node': index 4 in element 1 of 'i' is out of range; needed -4 to 3");
  EXPECT_EQ(refusal(indexed("Gather", {1}, {-5}), x),
            "Gather 'node': index -5 in element 0 of 'i' is out of range; needed -4 to 3");
  EXPECT_EQ(refusal(indexed("GatherElements", {1, 2}, {3, -6}), x),
            "GatherElements 'node': index -6 in element 1 of 'i' is out of range; needed -4 to 3");
  EXPECT_EQ(refusal(indexed("GatherND", {1, 2}, {3, 5}), x),
            "GatherND 'node': index 5 in element 1 of 'i' is out of range; needed -5 to 4");
  EXPECT_EQ(refusal(indexed("ScatterElements", {1, 2}, {0, 9}), x),
            "ScatterElements 'node': index 9 in element 1 of 'i' is out of range; needed -4 to 3");
  EXPECT_EQ(refusal(indexed("ScatterND", {1, 1}, {4}), x),
            "ScatterND 'node': index 4 in element 0 of 'i' is out of range; needed -4 to 3");
  for (const char* op : {"Gather", "GatherND", "ScatterND"}) {
    EXPECT_EQ(refusal(indexed(op, {1, 1}, {-4}), x), "accepted") << op;
  }
}

TEST(Onnx, AnAxisOutOfRangeIsRefusedWithTheRange) {
  OnnxBuilder b;
  b.input("x", {4, 5}).output("y", {}).integers("i", {1}, {0});
  OnnxBuilder::set_integer(b.node("Gather", {"x", "i"}, {"y"}), "axis", 2);
  EXPECT_EQ(refusal(b, {Constant::of_reals(std::vector<float>(20, 1.0F), {4, 5})}),
            "Gather 'y': axis 2 is out of range for a tensor of rank 2; needed -2 to 1");
}

TEST(Onnx, AnIndexOfTheDataOutOfRangeEndsTheRun) {
  OnnxBuilder b;
  b.input("x", {4, 5}).input("i", {3}, ::onnx::TensorProto::INT64).output("y", {3, 5});
  b.node("Gather", {"x", "i"}, {"y"});
  const std::string why = refusal(b, {Constant::of_reals(std::vector<float>(20, 1.0F), {4, 5}),
                                      Constant::of_integers({0, 3, 7}, {3})});
  EXPECT_THAT(why, HasSubstr("index 7 in element 2 of 'i' i32[3] is out of range for gather 'y', "
                             "which takes -4 to 3 of 'x' f32[4,5]"));
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
  conv.input("x", {1, 1, 2, 2, 2}).output("y", {1, 1, 2, 2, 2}).weight("w", {1, 1, 1, 1, 1}, {1});
  conv.node("Conv", {"x", "w"}, {"y"});
  EXPECT_THAT(refusal(conv, {Constant::of_reals(std::vector<float>(8), {1, 1, 2, 2, 2})}),
              HasSubstr("Conv 'y': not supported: an input of rank 5; available: sequences"));
  OnnxBuilder pad(10);
  pad.input("x", {2}).output("y", {4});
  auto& node = pad.node("Pad", {"x"}, {"y"});
  OnnxBuilder::set_integers(node, "pads", {1, 1});
  OnnxBuilder::set_text(node, "mode", "wrap");
  EXPECT_THAT(refusal(pad, {Constant::of_reals({1, 2}, {2})}),
              HasSubstr("Pad 'y': not supported: mode = wrap; available: constant, reflect, edge"));
}

TEST(Onnx, AnOperatorThatIsMissingIsNamedWithThoseThatAreThere) {
  OnnxBuilder b;
  b.input("x", {2}).output("y", {2});
  b.node("Det", {"x"}, {"y"});

  const std::string why = refusal(b, {Constant::of_reals({1, 2}, {2})});

  EXPECT_THAT(why, HasSubstr("not supported: Det; available: Abs,"));
}

TEST(Onnx, ANewerOpsetIsRefused) {
  OnnxBuilder b(18);
  b.input("x", {2}).output("y", {2});
  b.node("Relu", {"x"}, {"y"});

  EXPECT_THAT(refusal(b, {}), HasSubstr("opset 18 is newer than 17"));
}

TEST(Onnx, BytesThatAreNoModelAreRefusedAsData) {
  const auto model = OnnxModel::parse("this is not an ONNX model");

  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kData);
}

/// The graph of the job's model on a batch of three.
struct Built {
  Graph graph;
  Status status;
  std::shared_ptr<onnx_import::JobModel> model;
};

Built build(const OnnxBuilder& b, const std::string& loss, TensorType x) {
  Built built;
  built.model = *onnx_import::JobModel::parse("test.onnx", b.bytes(), loss);
  built.graph.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}}}};
  Builder builder(built.graph, {1, 0}, "");
  ModelInputs inputs;
  inputs.names = {"features", "labels"};
  const std::int64_t N = x.shape[0];
  inputs.tensors =
      builder.stream_in("train", inputs.names, {std::move(x), TensorType{DataType::kI32, {N}, {}}});
  inputs.classes = 2;
  built.model->build(builder, inputs);
  built.status = builder.status();
  return built;
}

TEST(OnnxJob, StoredWeightsBecomeParametersAndTheLastSoftmaxIsLeftOut) {
  const Built built = build(testing::perceptron(), "cross-entropy", {DataType::kF32, {3, 2}, {}});

  ASSERT_TRUE(built.status) << built.status.error().message;
  std::vector<std::string> parameters;
  for (const Tensor& tensor : built.graph.tensors()) {
    if (tensor.role == Role::kParameter) {
      parameters.push_back(tensor.name);
    }
  }
  EXPECT_THAT(parameters, UnorderedElementsAre("w1", "b1", "w2", "b2"));
  for (const Operation& operation : built.graph.functions[1].regions[0].operations) {
    EXPECT_NE(operation.kind, "softmax");
  }
  EXPECT_THAT(built.model->notes(), ElementsAre(HasSubstr("Softmax")));
  EXPECT_EQ(built.model->weights()->at("b1").size(), 12U);
}

TEST(OnnxJob, SingleNumbersThatPyTorchStoredAreWeightsAndMasksAreNot) {
  for (const std::string producer : {"pytorch", "another"}) {
    OnnxBuilder b;
    b.model.set_producer_name(producer);
    b.input("x", {-1, 2}).output("y", {-1, 2});
    b.weight("scale", {}, {2}).weight("mask", {1}, {-1e4F});
    b.node("Mul", {"x", "scale"}, {"z"});
    b.node("Max", {"z", "mask"}, {"y"});
    const Built built = build(b, "mean-squared-error", {DataType::kF32, {3, 2}, {}});
    ASSERT_TRUE(built.status) << built.status.error().message;
    const bool weight = built.graph.has("scale") &&
                        built.graph.tensor(built.graph.find("scale")).role == Role::kParameter;
    EXPECT_EQ(weight, producer == "pytorch");
    EXPECT_FALSE(built.graph.has("mask"));
  }
}

TEST(OnnxJob, IntegersThatAreStoredAreSetUpWithTheWeights) {
  OnnxBuilder b;
  b.input("x", {-1, 3}).output("y", {-1, 2});
  b.weight("w", {3, 2}, {1, 2, 3, 4, 5, 6}).integers("order", {3}, {0, 2, 1});
  auto& axis = *b.node("Gather", {"x", "order"}, {"z"}).add_attribute();
  axis.set_name("axis");
  axis.set_type(::onnx::AttributeProto::INT);
  axis.set_i(1);
  b.node("MatMul", {"z", "w"}, {"y"});

  const Built built = build(b, "cross-entropy", {DataType::kF32, {4, 3}, {}});

  ASSERT_TRUE(built.status) << built.status.error().message;
  EXPECT_THAT(to_text(built.graph), HasSubstr(" : i32[3] constant\n"));
  const Status verdict = verify_operations(built.graph);
  EXPECT_TRUE(verdict) << verdict.error().message;
}

TEST(OnnxJob, DataOfAnotherShapeAreRefusedWithBothShapes) {
  const Built built = build(testing::perceptron(), "cross-entropy", {DataType::kF32, {3, 5}, {}});

  ASSERT_FALSE(built.status);
  EXPECT_EQ(built.status.error().code, ErrorCode::kUsage);
  EXPECT_THAT(built.status.error().message,
              HasSubstr("the model takes 'x' [N,2], but the dataset gives [N,5]"));
}

TEST(OnnxJob, ABatchSizeWrittenIntoReshapesFollowsTheData) {
  OnnxBuilder b;
  b.input("x", {1, 2, 1}).output("y", {1, 2});
  b.integers("target", {2}, {1, 2});
  b.weight("w", {2, 2}, {1, 0, 0, 1});
  b.node("Reshape", {"x", "target"}, {"flat"});
  b.node("MatMul", {"flat", "w"}, {"y"});

  const Built built = build(b, "mean-squared-error", {DataType::kF32, {3, 2, 1}, {}});

  ASSERT_TRUE(built.status) << built.status.error().message;
  EXPECT_EQ(built.graph.tensor(built.graph.find("flat")).type.shape, (Shape{3, 2}));
}

TEST(OnnxJob, TheMeanSquaredErrorIsFloatInHalfPrecision) {
  // A half can represent neither the label 3,001 nor that many rows.
  constexpr std::int64_t kRows = 3001;
  OnnxBuilder b;
  b.input("x", {-1, 1}).output("y", {-1, 1});
  b.weight("w", {1, 1}, {1});
  b.node("MatMul", {"x", "w"}, {"y"});
  Built built = build(b, "mean-squared-error", {DataType::kF32, {kRows, 1}, {}});
  ASSERT_TRUE(built.status) << built.status.error().message;
  use_half(built.graph, {.half = true});
  testing::GraphRunner runner(built.graph);
  const Graph& graph = built.graph;
  ASSERT_EQ(graph.tensor(graph.find("y")).type.data, DataType::kF16);
  const Half one = to_half(1);
  std::memcpy(runner.bytes(graph.find("w")), &one, sizeof(one));
  auto& operations = built.graph.functions[1].regions[0].operations;
  ASSERT_EQ(operations[0].kind, "stream_in");
  std::ranges::fill(runner.floats(operations[0].outputs[0]), 3000.0F);
  const std::vector<std::int32_t> labels(kRows, 3001);
  std::memcpy(runner.bytes(operations[0].outputs[1]), labels.data(), kRows * 4);
  operations.erase(operations.begin());

  runner.run(operations);

  EXPECT_EQ(runner.floats(graph.find("loss"))[0], 1.0F);
  EXPECT_EQ(runner.floats(graph.find("loss.count"))[0], 3001.0F);
}

/// A Dropout with a mask output, and a matrix product.
OnnxBuilder dropper() {
  OnnxBuilder b;
  b.input("x", {1, 2}).output("y", {1, 2});
  b.weight("ratio", {}, {0.25F});
  b.weight("w", {2, 2}, {1, 0, 0, 1});
  b.node("Dropout", {"x", "ratio"}, {"dropped", "mask"});
  return b;
}

TEST(OnnxJob, ADropoutsMaskSaysWhatItDrops) {
  OnnxBuilder b = dropper();
  OnnxBuilder::set_integer(b.node("Cast", {"mask"}, {"kept"}), "to", ::onnx::TensorProto::FLOAT);
  b.node("Mul", {"x", "kept"}, {"product"});
  b.node("MatMul", {"product", "w"}, {"y"});

  constexpr std::int64_t kRows = 200;
  Built built = build(b, "cross-entropy", {DataType::kF32, {kRows, 2}, {}});
  ASSERT_TRUE(built.status) << built.status.error().message;
  testing::GraphRunner runner(built.graph);
  auto& operations = built.graph.functions[1].regions[0].operations;
  std::ranges::fill(runner.floats(operations[0].outputs[0]), 3.0F);
  const std::vector<std::int32_t> labels(kRows, 0);
  std::memcpy(runner.bytes(operations[0].outputs[1]), labels.data(), kRows * 4);
  operations.erase(operations.begin());

  runner.run(operations);

  const auto dropped = runner.floats(built.graph.find("dropped"));
  const auto product = runner.floats(built.graph.find("product"));
  int zeros = 0;
  for (std::size_t i = 0; i < dropped.size(); ++i) {
    EXPECT_EQ(product[i], dropped[i] == 0 ? 0 : 3) << i;
    zeros += dropped[i] == 0 ? 1 : 0;
  }
  EXPECT_GT(zeros, 40);
  EXPECT_LT(zeros, 160);
}

TEST(OnnxJob, DropoutDropsInTraining) {
  OnnxBuilder b = dropper();
  b.node("MatMul", {"dropped", "w"}, {"y"});

  const Built built = build(b, "cross-entropy", {DataType::kF32, {3, 2}, {}});

  ASSERT_TRUE(built.status) << built.status.error().message;
  const auto& operations = built.graph.functions[1].regions[0].operations;
  const auto dropout = std::ranges::find(operations, "dropout", &Operation::kind);
  ASSERT_NE(dropout, operations.end());
  EXPECT_EQ(dropout->attributes.real("rate"), 0.25);
  EXPECT_EQ(dropout->attributes.text("key"), "dropped");
}

}  // namespace
}  // namespace poprun
