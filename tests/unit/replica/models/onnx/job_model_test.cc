/// ONNX models as models of a job: what is trained, which batches and losses they take.

#include "replica/models/onnx/job_model.h"

#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/base/half.h"
#include "replica/compiler/arithmetic/half_storage.h"
#include "replica/compiler/passes.h"
#include "replica/models/onnx/last_softmax.h"
#include "replica/models/onnx/learnt.h"
#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/onnx_models.h"
#include "tests/unit/replica/texts.h"

namespace poprun::job_model_test {
namespace {

using onnx_import::Constant;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::OnnxBuilder;
using ::testing::UnorderedElementsAre;

/// The graph of the job's model on a batch of three.
struct Built {
  Graph graph;
  Status status;
  std::shared_ptr<onnx_import::JobModel> model;
};

Built build(const OnnxBuilder& b, Loss loss, TensorType x, const std::string& trained = "",
            const std::string& frozen = "") {
  Built built;
  built.model = *onnx_import::JobModel::parse("test.onnx", b.bytes(), loss, trained);
  built.graph.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}}}};
  Builder builder(built.graph, {1, 0}, "");
  ModelInputs inputs;
  inputs.names = {"features", "labels"};
  const std::int64_t N = x.shape[0];
  inputs.tensors = builder.stream_in("train", inputs.names, {std::move(x), TensorType{DataType::kI32, {N}, {}}});
  inputs.classes = 2;
  inputs.frozen = frozen;
  built.model->build(builder, inputs);
  built.status = builder.status();
  return built;
}

std::vector<std::string> names_of(const Built& built, Role role) {
  EXPECT_TRUE(built.status) << built.status.error().message;
  std::vector<std::string> names;
  for (const Tensor& tensor : built.graph.tensors()) {
    if (tensor.role == role) {
      names.push_back(tensor.name);
    }
  }
  return names;
}

std::vector<std::string> trained_of(const Built& built) {
  return names_of(built, Role::kParameter);
}

const TensorType kBatch{DataType::kF32, {3, 2}, {}};

TEST(OnnxJob, StoredWeightsBecomeParametersAndTheLastSoftmaxIsLeftOut) {
  const Built built = build(testing::perceptron(), Loss::kCrossEntropy, kBatch);

  EXPECT_THAT(trained_of(built), UnorderedElementsAre("w1", "b1", "w2", "b2"));
  for (const Operation& operation : built.graph.functions[1].regions[0].operations) {
    EXPECT_NE(operation.kind, "softmax");
  }
  EXPECT_THAT(testing::texts(built.model->notes()), ElementsAre(HasSubstr("Softmax")));
  EXPECT_EQ(built.model->weights()->at("b1").size(), 12U);
}

TEST(OnnxJob, WeightsThatComeSeparatelyAreParametersThatNothingReadsAtImport) {
  OnnxBuilder b = testing::perceptron();
  const auto set_apart = [&](int i, std::vector<std::int64_t> dims) {
    ::onnx::TensorProto& tensor = *b.model.mutable_graph()->mutable_initializer(i);
    const std::string name = tensor.name();
    tensor.Clear();
    tensor.set_name(name);
    tensor.set_data_type(::onnx::TensorProto::FLOAT16);
    tensor.mutable_dims()->Assign(dims.begin(), dims.end());
    tensor.set_raw_data("#weights");
    return name;
  };
  const auto& w1 = b.model.graph().initializer(0);
  const std::vector<std::int64_t> dims(w1.dims().begin(), w1.dims().end());
  ASSERT_EQ(set_apart(0, dims), "w1");
  const Built built = build(b, Loss::kCrossEntropy, kBatch);
  EXPECT_THAT(trained_of(built), UnorderedElementsAre("w1", "b1", "w2", "b2"));
  EXPECT_THAT(built.model->separate(), ElementsAre("w1"));
  EXPECT_FALSE(built.model->weights()->contains("w1"));
  EXPECT_TRUE(built.model->weights()->contains("w2"));
  set_apart(0, {1 << 16, 1 << 16});
  EXPECT_THAT(build(b, Loss::kCrossEntropy, kBatch).status.error().message, HasSubstr("tensor 'w1'"));
}

/// Returns a model that multiplies x [N,2] by a weight and applies `op` to the product and "c".
OnnxBuilder with_operand(const std::string& producer, const std::string& op) {
  OnnxBuilder b;
  b.model.set_producer_name(producer);
  b.input("x", {-1, 2}).output("y", {-1, 2});
  b.weight("w", {2, 2}, {1, 2, 3, 4});
  b.node("MatMul", {"x", "w"}, {"h"});
  b.node(op, {"h", "c"}, {"y"});
  return b;
}

/// Whether the file's tensor `c` is trained, and the note about it.
struct Told {
  bool trained = false;
  std::string note = {};
};

Told told(OnnxBuilder b, Loss op_loss = Loss::kMeanSquaredError, const std::string& trained = "",
          const std::string& frozen = "") {
  const Built built = build(b, op_loss, kBatch, trained, frozen);
  EXPECT_TRUE(built.status) << (built.status ? "" : built.status.error().message);
  Told told;
  for (const Tensor& tensor : built.graph.tensors()) {
    told.trained = told.trained || (tensor.role == Role::kParameter && tensor.name == "c");
  }
  const auto notes = testing::texts(built.model->notes());
  told.note = notes.empty() ? "" : notes.back();
  return told;
}

constexpr std::string_view kChange = "; to change that: training.frozen = REGEX, model.trained-constants = REGEX";

std::string not_trained(const std::string& what) {
  return fmt::format("model.onnx test.onnx: not trained: {}{}", what, kChange);
}

std::string number_trained(const std::string& name) {
  return fmt::format("model.onnx test.onnx: trained, as single numbers that may be weights: '{}'{}", name, kChange);
}

TEST(OnnxJob, InitialisersAreTrainedAndConstantNodesAreNot) {
  for (const std::string op : {"Add", "MatMul"}) {
    OnnxBuilder b;
    b.input("x", {-1, 2}).output("y", {-1, 2});
    b.weight("w", {2, 2}, {1, 2, 3, 4}).constant("c", {2, 2}, {1, 2, 3, 5});
    b.node("MatMul", {"x", "w"}, {"h"});
    if (op == "Add") {
      OnnxBuilder::set_integer(b.node("ReduceMax", {"c"}, {"row"}), "keepdims", 0);
    }
    b.node(op, {"h", op == "Add" ? "row" : "c"}, {"y"});
    const Told fixed = told(b);
    EXPECT_FALSE(fixed.trained);
    EXPECT_EQ(fixed.note, not_trained("'c' (a Constant node)"));
    const Told forced = told(b, Loss::kMeanSquaredError, "^c$");
    EXPECT_TRUE(forced.trained);
    EXPECT_EQ(forced.note, "");
  }
  OnnxBuilder stored = with_operand("", "MatMul");
  stored.weight("c", {2, 2}, {1, 2, 3, 5});
  EXPECT_TRUE(told(stored).trained);
  EXPECT_EQ(told(stored).note, "");
}

TEST(OnnxJob, NormsWithoutWeightsOfTheirOwnGetConstantsWithoutANote) {
  OnnxBuilder b(17);  // As PyTorch exports a GroupNorm.
  b.model.set_producer_name("pytorch");
  b.input("x", {-1, 4, 2}).output("y", {-1, 4});
  b.weight("gamma", {4, 1}, {1, 1, 1, 1}).integers("two", {3}, {0, 2, -1});
  b.constant("ones", {2}, {1, 1}).constant("zeros", {2}, {0, 0});
  b.node("Reshape", {"x", "two"}, {"groups"});
  b.node("InstanceNormalization", {"groups", "ones", "zeros"}, {"normal"});
  b.node("Shape", {"x"}, {"shape"});
  b.node("Reshape", {"normal", "shape"}, {"channels"});
  b.node("Mul", {"channels", "gamma"}, {"scaled"});
  OnnxBuilder::set_integer(b.node("ReduceMax", {"scaled"}, {"max"}), "keepdims", 1);
  OnnxBuilder::set_integers(*b.graph().mutable_node(b.graph().node_size() - 1), "axes", {2});
  b.node("Flatten", {"max"}, {"y"});

  const Built built = build(b, Loss::kCrossEntropy, {DataType::kF32, {3, 4, 2}, {}});

  EXPECT_THAT(trained_of(built), ElementsAre("gamma"));
  EXPECT_THAT(testing::texts(built.model->notes()), ElementsAre());
}

TEST(OnnxJob, SingleNumbersWithoutDimensionsAreWeightsWhereTheirNameSaysSo) {
  const auto stored = [](const std::string& producer, const std::string& name) {
    OnnxBuilder b;
    b.model.set_producer_name(producer);
    b.input("x", {-1, 2}).output("y", {-1, 2});
    b.weight("w", {2, 2}, {1, 2, 3, 4}).weight(name, {}, {0.5F});
    b.node("MatMul", {"x", "w"}, {"h"});
    b.node("Mul", {"h", name}, {"y"});
    const Built built = build(b, Loss::kMeanSquaredError, kBatch);
    EXPECT_EQ(built.model->notes().size(), 1U);
    const bool trained = std::ranges::count(trained_of(built), name) == 1;
    EXPECT_EQ(testing::texts(built.model->notes()).at(0),
              trained ? number_trained(name) : not_trained(fmt::format("'{}' (a scalar)", name)));
    return trained;
  };
  EXPECT_TRUE(stored("pytorch", "logit_scale"));
  EXPECT_TRUE(stored("pytorch", "blocks.0.alpha"));
  EXPECT_TRUE(stored("tf2onnx", "model/scale/ReadVariableOp:0"));
  for (const std::string name : {"/gelu/Constant_2_output_0", "onnx::Mul_12", "34", "val_5"}) {
    EXPECT_FALSE(stored("pytorch", name)) << name;
  }
  EXPECT_FALSE(stored("tf2onnx", "model/re_lu/Relu6/y"));
  EXPECT_FALSE(stored("", "half"));
}

TEST(OnnxJob, ABiasOfOneElementIsTrained) {
  OnnxBuilder b;
  b.model.set_producer_name("tf2onnx");
  b.input("x", {-1, 2}).output("y", {-1, 1});
  b.weight("w", {2, 1}, {1, 2}).weight("c", {1}, {-20000});
  b.graph().mutable_initializer(1)->set_float_data(0, 20000);
  b.node("MatMul", {"x", "w"}, {"h"});
  b.node("Add", {"h", "c"}, {"y"});
  EXPECT_TRUE(told(b).trained);
  EXPECT_EQ(told(b).note, number_trained("c"));
  EXPECT_EQ(told(b, Loss::kMeanSquaredError, "", "^c$").note, "") << "it is frozen";
}

TEST(OnnxJob, WhereAllWeightsAreConstantNodesTheseAreTrained) {
  OnnxBuilder b;
  b.model.set_producer_name("PaddlePaddle");
  b.input("x", {-1, 2}).output("y", {-1, 2});
  b.constant("w", {2, 2}, {1, 2, 3, 4}).constant("b", {2}, {1, 2}).constant("half", {}, {0.5F});
  b.node("MatMul", {"x", "w"}, {"h"});
  b.node("Add", {"h", "b"}, {"z"});
  b.node("Mul", {"z", "half"}, {"y"});

  const Built built = build(b, Loss::kMeanSquaredError, kBatch);

  EXPECT_THAT(trained_of(built), UnorderedElementsAre("w", "b"));
  EXPECT_THAT(
      testing::texts(built.model->notes()),
      ElementsAre(fmt::format(
          "model.onnx test.onnx: trained: the tensors in Constant nodes, because no initialiser contains weights{}",
          kChange)));
}

TEST(OnnxJob, WhatNobodyLearnsIsNotTrained) {
  const auto reason = [](const Shape& shape, const std::vector<float>& values) {
    const Constant constant = Constant::of_reals(values, shape);
    return onnx_import::fixed_table(constant).value_or("");
  };
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(reason({3, 3}, {0, -kInf, -kInf, 0, 0, -kInf, 0, 0, 0}), "a mask");
  EXPECT_EQ(reason({3, 3}, {1, 0, 0, 1, 1, 0, 1, 1, 1}), "a mask");
  EXPECT_EQ(reason({3, 3}, {0, 1, 1, 0, 0, 1, 0, 0, 0}), "a mask");
  EXPECT_EQ(reason({1, 2, 2}, {0, -100, -100, 0}), "a mask");
  EXPECT_EQ(reason({1}, {-1e4F}), "a mask");
  EXPECT_EQ(reason({2, 1, 1, 2}, {0.25F, 0.75F, 0.25F, 0.75F}), "the same filter for every channel");
  std::vector<float> sines;
  std::vector<float> frequencies;
  for (int p = 0; p < 6; ++p) {
    for (const double frequency : {1.0, 0.1}) {
      sines.push_back(static_cast<float>(std::sin(p * frequency)));
      sines.push_back(static_cast<float>(std::cos(p * frequency)));
    }
    frequencies.push_back(static_cast<float>(std::pow(10000.0, -p / 6.0)));
  }
  EXPECT_EQ(reason({1, 6, 4}, sines), "a table of sines or frequencies");
  EXPECT_EQ(reason({6}, frequencies), "a table of sines or frequencies");
  // Training begins with tensors such as ones, zeros, an identity, random numbers or a depthwise constant.
  EXPECT_EQ(reason({2, 2}, {1, 1, 1, 1}), "");
  EXPECT_EQ(reason({3, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1}), "");
  EXPECT_EQ(reason({4, 2}, {1, 0, 0, 1, 0.5F, 0.3F, -0.2F, 0.7F}), "");
  EXPECT_EQ(reason({2, 1, 1, 2}, {0.25F, 0.75F, 0.25F, 0.5F}), "");
  EXPECT_EQ(reason({2, 1, 1, 2}, {0.5F, 0.5F, 0.5F, 0.5F}), "");
  EXPECT_EQ(reason({1}, {20000}), "");

  OnnxBuilder b = with_operand("pytorch", "Add");
  b.weight("c", {3, 2}, {0, -1000, -1000, 0, 0, -1000});
  EXPECT_FALSE(told(b).trained);
  EXPECT_EQ(told(b).note, not_trained("'c' (a mask)"));
  EXPECT_TRUE(told(b, Loss::kMeanSquaredError, "^c$").trained);
}

TEST(OnnxJob, WeightsThatPyTorchStoredOnceBecauseTheyAreEqualTrainApart) {
  OnnxBuilder b;
  b.model.set_producer_name("pytorch");
  b.input("x", {-1, 2}).output("y", {-1, 2});
  b.weight("norm1.weight", {2}, {1, 1});
  b.node("Identity", {"norm1.weight"}, {"norm2.weight"});
  b.node("Mul", {"x", "norm1.weight"}, {"h"});
  b.node("Mul", {"h", "norm2.weight"}, {"y"});

  EXPECT_THAT(trained_of(build(b, Loss::kMeanSquaredError, kBatch)),
              UnorderedElementsAre("norm1.weight", "norm2.weight"));
}

TEST(OnnxJob, ConstantsToTrainThatTheFileLacksAreRefused) {
  const Built built = build(testing::perceptron(), Loss::kCrossEntropy, kBatch, "scale");
  ASSERT_FALSE(built.status);
  EXPECT_EQ(built.status.error().message,
            "model.onnx test.onnx: model.trained-constants = scale matches none of the file's "
            "constants, such as 'w1'");
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

  const Built built = build(b, Loss::kCrossEntropy, {DataType::kF32, {4, 3}, {}});

  ASSERT_TRUE(built.status) << built.status.error().message;
  EXPECT_THAT(to_text(built.graph), HasSubstr(" : i32[3] constant\n"));
  const Status verdict = verify_operations(built.graph);
  EXPECT_TRUE(verdict) << verdict.error().message;
}

TEST(OnnxJob, DataOfAnotherShapeAreRefusedWithBothShapes) {
  const Built built = build(testing::perceptron(), Loss::kCrossEntropy, {DataType::kF32, {3, 5}, {}});

  ASSERT_FALSE(built.status);
  EXPECT_EQ(built.status.error().code, ErrorCode::kUsage);
  EXPECT_THAT(built.status.error().message,
              HasSubstr("the model needs 'x' of shape [N,2], but the dataset provides [N,5]"));
}

std::string refused(const OnnxBuilder& b, Loss loss, TensorType x) {
  const Built built = build(b, loss, std::move(x));
  return built.status ? "accepted" : built.status.error().message;
}

TEST(OnnxJob, ABatchThatIsNotTheFirstAxisIsRefused) {
  const auto with_input = [](const std::vector<std::string>& dims, const std::string& out) {
    OnnxBuilder b(17);
    b.input("x", {5, 5, 6}).output("y", {-1, 6});
    for (int d = 0; d < 3; ++d) {
      auto& dim = *b.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(d);
      const std::string& text = dims.at(static_cast<std::size_t>(d));
      text.find_first_not_of("0123456789") == std::string::npos && !text.empty() ? dim.set_dim_value(std::stoi(text))
                                                                                 : dim.set_dim_param(text);
    }
    b.graph().mutable_output(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_param(
        out);
    b.weight("w", {6, 6}, std::vector<float>(36, 0.5F));
    b.node("MatMul", {"x", "w"}, {"h"});
    OnnxBuilder::set_integers(b.node("ReduceMean", {"h"}, {"y"}), "axes", {1});
    OnnxBuilder::set_integer(*b.graph().mutable_node(1), "keepdims", 0);
    return refused(b, Loss::kCrossEntropy, {DataType::kF32, {5, 5, 6}, {}});
  };
  EXPECT_EQ(with_input({"5", "batch", "6"}, "batch"),
            "model.onnx test.onnx: the model's input 'x' [5,batch,6] has its batch on axis 1, not on axis 0: "
            "export the model with the batch first (batch_first=True in PyTorch)");
  EXPECT_THAT(with_input({"time", "batch_size", "6"}, "batch_size"), HasSubstr("[time,batch_size"));
  EXPECT_THAT(with_input({"5", "N", "6"}, "N"), HasSubstr("batch on axis 1"));
  EXPECT_EQ(with_input({"batch", "time", "6"}, "batch"), "accepted");
  EXPECT_EQ(with_input({"N", "time", "6"}, "N"), "accepted");
  EXPECT_EQ(with_input({"1", "time", "6"}, "x"), "accepted");
}

/// Returns the message about a Softmax over `axis`, followed by the operator `behind`, on logits of shape `shape`.
std::string said_of_softmax(std::int64_t axis, const std::string& behind, const Shape& shape, std::int64_t opset = 13) {
  OnnxBuilder b(opset);
  Shape open = shape;
  open[0] = -1;
  b.input("x", open).output("y", {-1, 2});
  b.weight("w", {2}, {1, 2}).integers("target", {2}, {-1, 2});
  b.node("Add", {"x", "w"}, {"h"});
  OnnxBuilder::set_integer(b.node("Softmax", {"h"}, {behind.empty() ? "y" : "p"}), "axis", axis);
  if (behind == "Reshape") {
    b.node("Reshape", {"p", "target"}, {"y"});
  } else if (behind == "Cast") {
    OnnxBuilder::set_integer(b.node("Cast", {"p"}, {"y"}), "to", ::onnx::TensorProto::FLOAT);
  } else if (!behind.empty()) {
    b.node(behind, {"p"}, {"y"});
  }
  const Built built = build(b, Loss::kCrossEntropy, {DataType::kF32, shape, {}});
  EXPECT_TRUE(built.status) << (built.status ? "" : built.status.error().message);
  bool kept = false;
  for (const Operation& operation : built.graph.functions[1].regions[0].operations) {
    kept = kept || operation.kind == "softmax";
  }
  const auto notes = testing::texts(built.model->notes());
  EXPECT_EQ(notes.size(), 1U);
  EXPECT_EQ(kept, notes.at(0).find("is removed") == std::string::npos);
  return notes.empty() ? "" : notes[0];
}

TEST(OnnxJob, ALastSoftmaxIsLeftOutWhereItIsThatOfTheLoss) {
  const std::string left_out = "is removed: the loss uses its input instead";
  for (const std::string behind : {"", "Identity", "Cast", "Reshape"}) {
    EXPECT_THAT(said_of_softmax(1, behind, {3, 2}), HasSubstr(left_out)) << behind;
    EXPECT_THAT(said_of_softmax(1, behind, {3, 2}, 11), HasSubstr(left_out)) << behind;
  }
  EXPECT_EQ(said_of_softmax(0, "", {3, 2}),
            "the last Softmax 'y' is kept because it is over axis 0, not over the classes; the loss treats its output "
            "as logits, so softmax is applied twice; export the model without it");
  EXPECT_THAT(said_of_softmax(0, "Identity", {3, 2}), HasSubstr("'p' is kept because it is over"));
  EXPECT_THAT(said_of_softmax(0, "Reshape", {3, 2}), HasSubstr("'p' is kept because it is over"));
  EXPECT_THAT(said_of_softmax(0, "", {3, 2}, 11), HasSubstr("axis 0 and those after it, not"));
}

TEST(OnnxJob, ClassesOfPixelsComeSecondWhereTheyMayBeInEitherPlace) {
  using onnx_import::classes_are_ambiguous;
  using onnx_import::classes_come_second;
  EXPECT_TRUE(classes_come_second({3, 2, 2, 2}, {3, 2, 2}));
  EXPECT_TRUE(classes_are_ambiguous({3, 2, 2, 2}, {3, 2, 2}));
  EXPECT_FALSE(classes_come_second({3, 5, 5}, {3, 5})) << "tokens";
  EXPECT_TRUE(classes_are_ambiguous({3, 5, 5}, {3, 5}));
  EXPECT_TRUE(classes_come_second({3, 4, 2, 2}, {3, 2, 2}));
  EXPECT_FALSE(classes_come_second({3, 2, 2, 4}, {3, 2, 2}));
  EXPECT_FALSE(classes_are_ambiguous({3, 2, 2, 4}, {3, 2, 2}));
  EXPECT_FALSE(classes_come_second({3, 2}, {3}));
}

TEST(OnnxJob, WhatABatchSizeInTheFileBreaksIsRefusedWithBothSizes) {
  OnnxBuilder b;  // The number of heads, two, is multiplied by the batch of 2.
  b.input("x", {2, 4, 6}).output("y", {2, 3});
  b.integers("heads", {3}, {4, 4, 3}).integers("back", {3}, {2, 8, 3});
  b.weight("w", {3, 3}, std::vector<float>(9, 0.5F));
  b.node("Reshape", {"x", "heads"}, {"a"});
  b.node("MatMul", {"a", "w"}, {"h"});
  b.node("Reshape", {"h", "back"}, {"c"});
  OnnxBuilder::set_integers(b.node("ReduceMean", {"c"}, {"y"}), "axes", {1});
  OnnxBuilder::set_integer(*b.graph().mutable_node(3), "keepdims", 0);
  EXPECT_THAT(refused(b, Loss::kCrossEntropy, {DataType::kF32, {4, 4, 6}, {}}),
              AllOf(HasSubstr("Reshape 'a': "),
                    HasSubstr("; the file was written for batches of 2, but the job has batches of 4: set "
                              "data.micro-batch-size = 2, or export the model with a dynamic axis "
                              "for the batch")));
  EXPECT_EQ(refused(b, Loss::kCrossEntropy, {DataType::kF32, {2, 4, 6}, {}}), "accepted");
}

TEST(OnnxJob, AClassTokenThatAFileForOneSampleHasOnceIsRepeated) {
  OnnxBuilder b;
  b.input("x", {1, 3, 2}).output("y", {1, 2});
  b.weight("token", {1, 1, 2}, {7, 8}).integers("once", {3}, {1, -1, -1}).integers("zero", {}, {0});
  b.node("Add", {"token", "token"}, {"twice"});
  OnnxBuilder::set_integer(b.node("Concat", {"twice", "x"}, {"all"}), "axis", 1);
  OnnxBuilder::set_integer(b.node("Gather", {"all", "zero"}, {"y"}), "axis", 1);
  Built built = build(b, Loss::kCrossEntropy, {DataType::kF32, {4, 3, 2}, {}});
  ASSERT_TRUE(built.status) << built.status.error().message;
  EXPECT_THAT(to_text(built.graph), HasSubstr("tensor all~2 : f32[4,4,2]"));
}

TEST(OnnxJob, AFirstOutputOfOneNumberIsRefusedWithTheOthers) {
  OnnxBuilder b;
  b.input("x", {-1, 2}).output("loss", {}).output("l", {-1, 2});
  b.weight("w", {2, 2}, {1, 2, 3, 4});
  b.node("MatMul", {"x", "w"}, {"l"});
  OnnxBuilder::set_integer(b.node("ReduceMean", {"l"}, {"loss"}), "keepdims", 0);
  EXPECT_EQ(refused(b, Loss::kCrossEntropy, kBatch),
            "model.onnx test.onnx: the first output 'loss' is a single number, but it must be the "
            "logits, with a row for each of 3 samples; export the model with that output first "
            "(other outputs: 'l' f32[3,2])");
  b.graph().mutable_node(1)->mutable_attribute(0)->set_i(1);  // [1,1] is a single number, too.
  b.graph().mutable_output()->RemoveLast();
  EXPECT_THAT(refused(b, Loss::kMeanSquaredError, kBatch),
              AllOf(HasSubstr("must be the predictions"), HasSubstr("(other outputs: none)")));
}

TEST(OnnxJob, Bfloat16IsComputedInFloat32) {
  OnnxBuilder b;
  b.input("x", {-1, 2}, ::onnx::TensorProto::BFLOAT16).output("y", {-1, 2}, ::onnx::TensorProto::BFLOAT16);
  auto& w = *b.graph().add_initializer();
  w.set_name("w");
  w.set_data_type(::onnx::TensorProto::BFLOAT16);
  w.add_dims(2);
  w.add_dims(2);
  w.set_raw_data(std::string("\x80\x3F\x00\x40\x40\x40\x80\x40", 8));  // 1, 2, 3, 4.
  b.node("MatMul", {"x", "w"}, {"y"});
  const Built built = build(b, Loss::kMeanSquaredError, kBatch);
  EXPECT_THAT(trained_of(built), ElementsAre("w"));
  const float expected[] = {1, 2, 3, 4};
  EXPECT_EQ(std::memcmp(built.model->weights()->at("w").data(), expected, 16), 0);
}

TEST(OnnxJob, ABatchSizeWrittenIntoReshapesFollowsTheData) {
  OnnxBuilder b;
  b.input("x", {1, 2, 1}).output("y", {1, 2});
  b.integers("target", {2}, {1, 2});
  b.weight("w", {2, 2}, {1, 0, 0, 1});
  b.node("Reshape", {"x", "target"}, {"flat"});
  b.node("MatMul", {"flat", "w"}, {"y"});

  const Built built = build(b, Loss::kMeanSquaredError, {DataType::kF32, {3, 2, 1}, {}});

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
  Built built = build(b, Loss::kMeanSquaredError, {DataType::kF32, {kRows, 1}, {}});
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
  Built built = build(b, Loss::kCrossEntropy, {DataType::kF32, {kRows, 2}, {}});
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

  const Built built = build(b, Loss::kCrossEntropy, {DataType::kF32, {3, 2}, {}});

  ASSERT_TRUE(built.status) << built.status.error().message;
  const auto& operations = built.graph.functions[1].regions[0].operations;
  const auto dropout = std::ranges::find(operations, "dropout", &Operation::kind);
  ASSERT_NE(dropout, operations.end());
  EXPECT_EQ(dropout->attributes.real("rate"), 0.25);
  EXPECT_EQ(dropout->attributes.text("key"), "dropped");
}

}  // namespace
}  // namespace poprun::job_model_test
