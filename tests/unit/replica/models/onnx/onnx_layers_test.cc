/// The layers of ONNX models: the pieces between the narrowest places of their graphs.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/models/onnx/job_model.h"
#include "tests/unit/replica/onnx_models.h"

namespace poprun::onnx_layers_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::OnnxBuilder;

std::vector<std::string> names(const Graph& graph) {
  std::vector<std::string> names;
  std::ranges::transform(graph.layers, std::back_inserter(names), &Layer::name);
  return names;
}

/// Returns the output and the layer of each operation of a region, such as "fc1:0" and "relu:0".
std::vector<std::string> operations(const Graph& graph, Place place) {
  std::vector<std::string> parts;
  for (const Operation& operation : graph.at(place).operations) {
    parts.push_back(graph.tensor(operation.outputs.at(0)).name + ":" + std::to_string(operation.origin.layer));
  }
  return parts;
}

/// Builds a file's model for training and for evaluation, on items of shape `item`.
Graph built(const std::string& bytes, const Shape& item) {
  auto model = onnx_import::JobModel::parse("net.onnx", bytes, Loss::kCrossEntropy);
  EXPECT_TRUE(model) << model.error().message;
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}}}, {"evaluate", {{1, {}}}}};
  for (const bool training : {true, false}) {
    const std::string prefix = training ? "" : "evaluate/";
    Builder builder(graph, {training ? std::size_t{1} : std::size_t{2}, 0}, prefix);
    ModelInputs inputs;
    inputs.training = training;
    Shape shape{1};
    shape.insert(shape.end(), item.begin(), item.end());
    inputs.names = {"images", "labels"};
    inputs.tensors = {graph.add_tensor({prefix + "images", {DataType::kF32, shape, {}}, Role::kStream}),
                      graph.add_tensor({prefix + "labels", {DataType::kI32, {1}, {}}, Role::kStream})};
    (*model)->build(builder, inputs);
    EXPECT_TRUE(builder.status()) << builder.status().error().message;
  }
  return graph;
}

void add_dense(OnnxBuilder& file, const std::string& name, const std::string& x, const std::string& y) {
  file.weight(name + ".weight", {8, 8}, std::vector<float>(64, 0.5F));
  file.node("MatMul", {x, name + ".weight"}, {y}).set_name("/" + name + "/MatMul");
}

/// Returns a model of five dense layers, of which the second and third are the body of a residual block.
std::string residual() {
  OnnxBuilder file;
  file.input("x", {1, 8}).output("y", {1, 8});
  add_dense(file, "fc1", "x", "a");
  file.node("Relu", {"a"}, {"ra"}).set_name("/fc1/Relu");
  add_dense(file, "block/fc2", "ra", "b");
  file.node("Relu", {"b"}, {"rb"}).set_name("/block/Relu");
  add_dense(file, "block/fc3", "rb", "c");
  file.node("Add", {"ra", "c"}, {"sum"}).set_name("/block/Add");
  add_dense(file, "fc4", "sum", "d");
  add_dense(file, "fc5", "d", "y");
  return file.model.SerializeAsString();
}

TEST(OnnxLayers, AreCutWhereOneTensorCrosses) {
  EXPECT_THAT(names(built(residual(), {8})), ElementsAre("fc1", "block", "fc4", "fc5"));
}

TEST(OnnxLayers, AreTheSameInTrainingAndEvaluation) {
  const Graph graph = built(residual(), {8});
  EXPECT_THAT(operations(graph, {1, 0}),
              ElementsAre("a:0", "ra:0", "b:1", "rb:1", "c:1", "sum:1", "d:2", "y:3", "loss:3"));
  EXPECT_THAT(operations(graph, {2, 0}),
              ElementsAre("evaluate/a:0", "evaluate/ra:0", "evaluate/b:1", "evaluate/rb:1", "evaluate/c:1",
                          "evaluate/sum:1", "evaluate/d:2", "evaluate/y:3", "evaluate/loss:3"));
}

TEST(OnnxLayers, AreCalledByWhatTheyWriteWhereNodesShareNoFolder) {
  OnnxBuilder file;
  file.input("x", {1, 8}).output("y", {1, 8});
  add_dense(file, "a", "x", "first product");
  file.node("Relu", {"first product"}, {"ra"}).set_name("Relu_1");
  add_dense(file, "b", "ra", "y");
  EXPECT_THAT(names(built(file.model.SerializeAsString(), {8})), ElementsAre("first_product", "b"));
}

/// Returns a network of the ONNX project, or an empty text if the shared data are missing.
std::string network(const std::string& name) {
  const char* shared = std::getenv("POPRUN_EMU_SHARED");
  const std::filesystem::path root = shared != nullptr ? shared : POPRUN_SHARED;
  std::ifstream file(root / "onnx" / "light" / name / "model.onnx", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(OnnxLayers, AreWhatAPersonWouldCountInRealNetworks) {
  if (network("vgg19").empty()) {
    GTEST_SKIP() << "no ONNX networks";
  }
  const Shape image = {3, 224, 224};
  // The networks have: 16 convolutions and 3 dense layers; a stem, 16 residual blocks and a classifier; a stem of 3
  // convolutions, 9 inception modules and a classifier; 8 pairs of squeeze and expand between two convolutions.
  EXPECT_EQ(names(built(network("vgg19"), image)).size(), 19U);
  EXPECT_EQ(names(built(network("resnet50"), image)).size(), 18U);
  EXPECT_EQ(names(built(network("inception_v1"), image)).size(), 13U);
  EXPECT_EQ(names(built(network("squeezenet"), image)).size(), 18U);
}

}  // namespace
}  // namespace poprun::onnx_layers_test
