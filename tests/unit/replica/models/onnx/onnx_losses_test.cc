/// Losses of ONNX models refuse outputs and labels that do not fit, by the names of the file and the option.

#include <optional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/models/onnx/job_model.h"
#include "tests/unit/replica/onnx_models.h"

namespace poprun::onnx_losses_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::OnnxBuilder;

/// Returns the error of a model on a batch of three with labels of this type, if there are labels.
std::string refusal(const OnnxBuilder& b, Loss loss, const std::optional<TensorType>& labels) {
  const auto model = *onnx_import::JobModel::parse("test.onnx", b.bytes(), loss);
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}}}};
  Builder builder(graph, {1, 0}, "");
  ModelInputs inputs;
  inputs.names = {"features"};
  std::vector<TensorType> types = {{DataType::kF32, {3, 2}, Layout::kRowMajor}};
  if (labels) {
    inputs.names.emplace_back("labels");
    types.push_back(*labels);
  }
  inputs.tensors = builder.stream_in("train", inputs.names, types);
  model->build(builder, inputs);
  EXPECT_FALSE(builder.status());
  return builder.status() ? "" : builder.status().error().message;
}

TEST(OnnxJob, LossesNeedLabels) {
  for (const Loss loss : {Loss::kBinaryCrossEntropy, Loss::kContrastive, Loss::kGlobalContrastive, Loss::kCtc}) {
    EXPECT_THAT(refusal(testing::perceptron(), loss, {}), HasSubstr("the model needs labels, but the dataset has"))
        << word_of(loss);
  }
}

TEST(OnnxJob, LossesNameTheOptionTheOutputAndTheLabelsThatDoNotFit) {
  const TensorType labels{DataType::kI32, {3, 4}, Layout::kRowMajor};
  for (const Loss loss : {Loss::kBinaryCrossEntropy, Loss::kContrastive, Loss::kCtc}) {
    EXPECT_THAT(refusal(testing::perceptron(), loss, labels),
                AllOf(HasSubstr(fmt::format("model.onnx test.onnx: model.loss = {}: the model outputs f32[3,2] and "
                                            "needs labels of",
                                            word_of(loss))),
                      HasSubstr("but the dataset has i32[3,4]; save labels")));
  }
}

TEST(OnnxJob, PairsOfAllReplicasNeedTwoOutputs) {
  const TensorType labels{DataType::kI32, {3}, Layout::kRowMajor};
  EXPECT_EQ(
      refusal(testing::perceptron(), Loss::kGlobalContrastive, labels),
      "model.onnx test.onnx: model.loss = global-contrastive needs two outputs, embeddings [N,D] of both sides of "
      "the pairs, and optionally the factor of their similarities, but the model has only 'y'; export the "
      "embeddings as outputs, or, with similarities [N,N] as the output, set model.loss = contrastive");
  OnnxBuilder b;
  b.input("x", {-1, 2}).output("left", {-1, 2}).output("right", {-1, 3});
  b.weight("a", {2, 2}, {1, 2, 3, 4}).weight("b", {2, 3}, {1, 2, 3, 4, 5, 6});
  b.node("MatMul", {"x", "a"}, {"left"});
  b.node("MatMul", {"x", "b"}, {"right"});
  EXPECT_THAT(refusal(b, Loss::kGlobalContrastive, labels), HasSubstr("but they are f32[3,2] and f32[3,3]; export"));
}

}  // namespace
}  // namespace poprun::onnx_losses_test
