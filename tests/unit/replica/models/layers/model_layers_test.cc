/// The layers of built-in models, which are the units that pipeline stages are made of.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/models/layers/model.h"

namespace poprun::model_layers_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Appends the model's forward pass on its sample.
void build(const Model& model, const std::map<std::string, std::int64_t>& sizes, bool training, Graph& graph,
           Place place) {
  const std::string prefix = training ? "" : "evaluate/";
  Builder builder(graph, place, prefix);
  ModelInputs inputs;
  inputs.classes = model.sample.classes;
  inputs.training = training;
  inputs.dropout = 0.1;
  inputs.sizes = *sizes_of(model, sizes);
  for (const SampleTensor& tensor : model.sample.tensors) {
    Shape shape{1};
    shape.insert(shape.end(), tensor.shape.begin(), tensor.shape.end());
    inputs.names.push_back(tensor.name);
    inputs.tensors.push_back(graph.add_tensor({prefix + tensor.name, {tensor.data, shape, {}}, Role::kStream}));
  }
  model.build(builder, inputs);
  ASSERT_TRUE(builder.status()) << model.name << ": " << builder.status().error().message;
}

Graph built(const Model& model, const std::map<std::string, std::int64_t>& sizes = {}) {
  Graph graph;
  graph.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}}}, {"evaluate", {{1, {}}}}};
  build(model, sizes, /*training=*/true, graph, {1, 0});
  return graph;
}

std::vector<std::string> layers(const std::string& model, const std::map<std::string, std::int64_t>& sizes = {}) {
  std::vector<std::string> names;
  for (const Layer& layer : built(*find_model(model), sizes).layers) {
    names.push_back(layer.name + (layer.counted ? "" : " uncounted"));
  }
  return names;
}

TEST(ModelLayers, AreEncoderLayersBetweenEmbeddingsAndHeads) {
  EXPECT_THAT(layers("bert-base", {{"layers", 2}}), ElementsAre("bert.embeddings uncounted", "bert.encoder.layer.0",
                                                                "bert.encoder.layer.1", "cls uncounted"));
  EXPECT_THAT(layers("gpt2", {{"layers", 2}}),
              ElementsAre("transformer.wte uncounted", "transformer.h.0", "transformer.h.1", "lm_head uncounted"));
}

TEST(ModelLayers, AreConvolutionsResidualBlocksAndDenseLayers) {
  EXPECT_THAT(layers("small-cnn"), ElementsAre("conv1", "conv2", "fc1", "fc2"));
  EXPECT_THAT(layers("mlp", {{"layers", 3}}), ElementsAre("fc1", "fc2", "fc3", "fc4"));
  EXPECT_THAT(layers("resnet18"), ElementsAre("conv1", "layer1.0", "layer1.1", "layer2.0", "layer2.1", "layer3.0",
                                              "layer3.1", "layer4.0", "layer4.1", "fc"));
  EXPECT_EQ(layers("resnet50").size(), 18U);
  EXPECT_EQ(layers("resnet101").size(), 35U);
  EXPECT_THAT(layers("efficientnet-b0"),
              ElementsAre("features.0", "features.1.0", "features.2.0", "features.2.1", "features.3.0", "features.3.1",
                          "features.4.0", "features.4.1", "features.4.2", "features.5.0", "features.5.1",
                          "features.5.2", "features.6.0", "features.6.1", "features.6.2", "features.6.3",
                          "features.7.0", "features.8", "classifier"));
  EXPECT_EQ(layers("efficientnet-b4").size(), 35U);
}

/// Returns the operations of a region whose layer precedes that of the operation before them or is missing.
std::vector<std::string> faults(const Graph& graph, Place place) {
  std::vector<std::string> found;
  std::int32_t last = 0;
  for (const Operation& operation : graph.at(place).operations) {
    if (operation.origin.layer < last) {
      found.push_back(operation.outputs.empty() ? operation.kind : graph.tensor(operation.outputs[0]).name);
    }
    last = operation.origin.layer;
  }
  return found;
}

TEST(ModelLayers, HoldEveryOperationInTheOrderOfTheForwardPass) {
  for (const Model& model : all_models()) {
    const Graph graph = built(model);
    EXPECT_GE(graph.layers.size(), 2U) << model.name;
    EXPECT_THAT(faults(graph, {1, 0}), IsEmpty()) << model.name;
  }
}

TEST(ModelLayers, AreTheSameOnesInEvaluation) {
  for (const Model& model : all_models()) {
    Graph graph = built(model);
    const std::vector<Layer> of_training = graph.layers;
    build(model, {}, /*training=*/false, graph, {2, 0});
    EXPECT_EQ(graph.layers, of_training) << model.name;
    EXPECT_THAT(faults(graph, {2, 0}), IsEmpty()) << model.name;
    EXPECT_EQ(graph.at({2, 0}).operations.back().origin.layer, static_cast<std::int32_t>(of_training.size()) - 1)
        << model.name;
  }
}

}  // namespace
}  // namespace poprun::model_layers_test
