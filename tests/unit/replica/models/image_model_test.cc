/// Image models: parameters match those of torchvision and Hugging Face, and gradients of the blocks of ResNets match
/// the definition in double.

#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/arithmetic/differentiation.h"
#include "replica/compiler/compile.h"
#include "replica/device/device.h"
#include "replica/models/layers/layers.h"
#include "replica/models/layers/model.h"
#include "replica/models/layers/resnet.h"
#include "tests/unit/replica/graph_runner.h"

namespace poprun {
namespace {

using testing::GraphRunner;

/// Returns the graph of a model's job on images of the given shape.
Graph job_of(const std::string& name, const Shape& image, std::int64_t classes) {
  Shape images = image;
  images.insert(images.begin(), 2);
  CompileOptions options;
  options.inputs = {{"images", {DataType::kU8, images, {}}}, {"labels", {DataType::kI32, {2}, {}}}};
  options.forward = [&](Builder& builder, const std::vector<TensorId>& tensors, bool training) {
    return find_model(name)->build(builder, {.names = {"images", "labels"},
                                             .tensors = tensors,
                                             .classes = classes,
                                             .training = training,
                                             .sizes = find_model(name)->sizes});
  };
  options.optimizer = {.name = "sgd"};
  auto graph = build_job(options);
  EXPECT_TRUE(graph) << graph.error().message;
  return graph ? *graph : Graph{};
}

std::int64_t elements(const Graph& graph, Role role) {
  std::int64_t total = 0;
  for (const Tensor& tensor : graph.tensors()) {
    total += tensor.role == role ? tensor.type.elements() : 0;
  }
  return total;
}

/// Returns the type of a tensor: "f32[64,3,7,7]", or "none" if the graph has no tensor of that name.
std::string type_of(const Graph& graph, const std::string& name) {
  return graph.has(name) ? to_text(graph.tensor(graph.find(name)).type) : "none";
}

void expect_parameters_without_batch_normalisation(const std::string& name, std::int64_t count) {
  const Model model = *find_model(name);
  for (const Normalisation kind : {Normalisation::kGroup, Normalisation::kLayer, Normalisation::kInstance}) {
    Graph graph;
    graph.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}}}};
    Builder builder(graph, {1, 0}, "");
    const TensorId images = graph.add_tensor({"images", {DataType::kU8, {2, 3, 64, 64}, {}}, Role::kStream});
    const TensorId labels = graph.add_tensor({"labels", {DataType::kI32, {2}, {}}, Role::kStream});
    model.build(builder, {.names = {"images", "labels"},
                          .tensors = {images, labels},
                          .classes = 1000,
                          .normalisation = kind,
                          .sizes = model.sizes});
    ASSERT_TRUE(builder.status()) << builder.status().error().message;
    EXPECT_EQ(elements(graph, Role::kParameter), count) << word_of(kind);
    EXPECT_EQ(elements(graph, Role::kBuffer), 0) << word_of(kind);
  }
}

TEST(ResNet, KeepsItsParametersWithoutBatchNormalisation) {
  expect_parameters_without_batch_normalisation("resnet18", 11'689'512);
}

TEST(EfficientNet, KeepsItsParametersWithoutBatchNormalisation) {
  expect_parameters_without_batch_normalisation("efficientnet-b0", 5'288'548);
}

TEST(ResNet, HasTorchvisionsParameterCounts) {
  const std::map<std::string, std::int64_t> counts = {
      {"resnet18", 11'689'512},        {"resnet50", 25'557'032},         {"resnet101", 44'549'160},
      {"resnext50-32x4d", 25'028'904}, {"resnext101-32x4d", 44'177'704}, {"resnext101-32x8d", 88'791'336}};
  for (const auto& [name, count] : counts) {
    EXPECT_EQ(elements(job_of(name, {3, 224, 224}, 1000), Role::kParameter), count) << name;
  }
}

TEST(EfficientNet, HasTorchvisionsParameterCounts) {
  const std::map<std::string, std::int64_t> counts = {{"efficientnet-b0", 5'288'548},
                                                      {"efficientnet-b1", 7'794'184},
                                                      {"efficientnet-b2", 9'109'994},
                                                      {"efficientnet-b3", 12'233'232},
                                                      {"efficientnet-b4", 19'341'616}};
  for (const auto& [name, count] : counts) {
    EXPECT_EQ(elements(job_of(name, {3, 224, 224}, 1000), Role::kParameter), count) << name;
  }
}

TEST(EfficientNet, HasTorchvisionsNamesAndShapes) {
  const Graph graph = job_of("efficientnet-b0", {3, 224, 224}, 1000);
  const auto shape = [&](const std::string& name) { return type_of(graph, name); };
  EXPECT_EQ(shape("features.0.0.weight"), "f32[32,3,3,3]");
  EXPECT_EQ(shape("features.0.1.running_var"), "f32[32]");
  // The first block does not expand: its parts are the depthwise convolution, the gate and the 1x1 convolution.
  EXPECT_EQ(shape("features.1.0.block.0.0.weight"), "f32[32,1,3,3]");
  EXPECT_EQ(shape("features.1.0.block.1.fc1.weight"), "f32[8,32,1,1]");
  EXPECT_EQ(shape("features.1.0.block.2.0.weight"), "f32[16,32,1,1]");
  EXPECT_EQ(shape("features.1.0.block.3.0.weight"), "none");
  EXPECT_EQ(shape("features.3.1.block.0.0.weight"), "f32[240,40,1,1]");
  EXPECT_EQ(shape("features.3.1.block.1.0.weight"), "f32[240,1,5,5]");
  EXPECT_EQ(shape("features.3.1.block.2.fc1.weight"), "f32[10,240,1,1]");
  EXPECT_EQ(shape("features.3.1.block.2.fc2.bias"), "f32[240]");
  EXPECT_EQ(shape("features.3.1.block.3.1.bias"), "f32[40]");
  EXPECT_EQ(shape("features.3.1.block.0.0.bias"), "none");
  EXPECT_EQ(shape("features.6.3.add"), "f32[2,192,7,7]{nhwc}");
  EXPECT_EQ(shape("features.6.0.add"), "none") << "the stride is 2";
  EXPECT_EQ(shape("features.7.0.block.3.0.weight"), "f32[320,1152,1,1]");
  EXPECT_EQ(shape("features.8.0.weight"), "f32[1280,320,1,1]");
  EXPECT_EQ(shape("classifier.1.weight"), "f32[1000,1280]");
  // There are 213 parameter tensors and 49 pairs of running statistics, as in torchvision's state dict.
  EXPECT_EQ(std::ranges::count(graph.tensors(), Role::kParameter, &Tensor::role), 213);
  EXPECT_EQ(std::ranges::count(graph.tensors(), Role::kBuffer, &Tensor::role), 98);
}

TEST(Vit, HasHuggingFacesNamesAndShapes) {
  const Graph graph = job_of("vit-base-16", {3, 224, 224}, 1000);
  const auto shape = [&](const std::string& name) { return type_of(graph, name); };
  EXPECT_EQ(shape("vit.embeddings.cls_token"), "f32[1,1,768]");
  EXPECT_EQ(shape("vit.embeddings.position_embeddings"), "f32[1,197,768]");
  EXPECT_EQ(shape("vit.embeddings.patch_embeddings.projection.weight"), "f32[768,3,16,16]");
  EXPECT_EQ(shape("vit.encoder.layer.11.attention.attention.key.bias"), "f32[768]");
  EXPECT_EQ(shape("vit.encoder.layer.11.attention.output.dense.weight"), "f32[768,768]");
  EXPECT_EQ(shape("vit.encoder.layer.0.intermediate.dense.weight"), "f32[3072,768]");
  EXPECT_EQ(shape("vit.encoder.layer.0.layernorm_after.weight"), "f32[768]");
  EXPECT_EQ(shape("vit.encoder.layer.12.layernorm_before.weight"), "none");
  EXPECT_EQ(shape("vit.layernorm.bias"), "f32[768]");
  EXPECT_EQ(shape("classifier.weight"), "f32[1000,768]");
  // 4 in the embeddings, 16 per layer, 2 in the last norm and 2 in the head, as in Hugging Face's state dict.
  EXPECT_EQ(std::ranges::count(graph.tensors(), Role::kParameter, &Tensor::role), 4 + 12 * 16 + 2 + 2);
}

TEST(Vit, RefusesImagesThatPatchesDoNotFill) {
  const auto refusal = [](const Shape& images, const std::map<std::string, std::int64_t>& sizes) {
    Graph graph;
    graph.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}}}};
    Builder builder(graph, {1, 0}, "");
    const Model model = *find_model("vit-base-16");
    const TensorId stream = graph.add_tensor({"images", {DataType::kU8, images, {}}, Role::kStream});
    const TensorId labels = graph.add_tensor({"labels", {DataType::kI32, {images[0]}, {}}, Role::kStream});
    model.build(
        builder,
        {.names = {"images", "labels"}, .tensors = {stream, labels}, .classes = 10, .sizes = *sizes_of(model, sizes)});
    return builder.status() ? "" : builder.status().error().message;
  };
  EXPECT_EQ(refusal({2, 3, 32, 48}, {{"layers", 1}, {"hidden", 8}, {"heads", 2}}), "");
  EXPECT_EQ(refusal({2, 3, 32, 40}, {}),
            "data.source: the model needs images whose height and width are multiples of 16, but the dataset has "
            "images of 32 x 40 pixels");
  EXPECT_EQ(refusal({2, 1, 28, 8}, {}),
            "data.source: the model needs u8 or f32 images [N,C,H,W] of at least 16 x 16 pixels, but the dataset has "
            "u8[2,1,28,8]");
  EXPECT_EQ(refusal({2, 3, 32, 32}, {{"hidden", 8}, {"heads", 3}}), "model.heads = 3 does not divide model.hidden = 8");
}

TEST(ResNet, HasTorchvisionsNamesAndShapes) {
  const Graph graph = job_of("resnext50-32x4d", {3, 224, 224}, 1000);

  const auto shape = [&](const std::string& name) { return type_of(graph, name); };
  EXPECT_EQ(shape("conv1.weight"), "f32[64,3,7,7]");
  EXPECT_EQ(shape("bn1.running_var"), "f32[64]");
  EXPECT_EQ(shape("layer1.0.conv2.weight"), "f32[128,4,3,3]");
  EXPECT_EQ(shape("layer1.0.downsample.0.weight"), "f32[256,64,1,1]");
  EXPECT_EQ(shape("layer1.1.downsample.0.weight"), "none");
  EXPECT_EQ(shape("layer3.0.downsample.1.running_mean"), "f32[1024]");
  EXPECT_EQ(shape("layer4.2.bn3.bias"), "f32[2048]");
  EXPECT_EQ(shape("fc.weight"), "f32[1000,2048]");
  EXPECT_EQ(shape("fc.bias"), "f32[1000]");
  EXPECT_EQ(shape("layer4.0.conv2"), "f32[2,1024,7,7]{nhwc}") << "the stride is in the 3x3";
  // There are 161 parameter tensors and 53 pairs of running statistics, as in torchvision's state dict.
  EXPECT_EQ(std::ranges::count(graph.tensors(), Role::kParameter, &Tensor::role), 161);
  EXPECT_EQ(std::ranges::count(graph.tensors(), Role::kBuffer, &Tensor::role), 106);
  EXPECT_EQ(elements(job_of("resnet50", {3, 224, 224}, 1000), Role::kBuffer), 53'120);
}

TEST(ResNet, TakesSmallImagesOfOneChannel) {
  const Graph graph = job_of("resnet50", {1, 28, 28}, 10);

  EXPECT_EQ(to_text(graph.tensor(graph.find("layer4.2.relu3")).type), "f32[2,2048,1,1]{nhwc}");
  EXPECT_EQ(to_text(graph.tensor(graph.find("fc")).type), "f32[2,10]");
}

TEST(Mlp, HasItsParameterCount) {
  EXPECT_EQ(elements(job_of("mlp", {1, 28, 28}, 10), Role::kParameter), 1'863'690);
}

/// Images of several channels, and one number for each.
struct Images {
  int N, C, H, W;
  std::vector<double> values;

  [[nodiscard]] std::size_t at(int n, int c, int h, int w) const {
    return static_cast<std::size_t>(((n * C + c) * H + h) * W + w);
  }
};

/// The forward pass of the network below, written from its definition alone, in double and with plain loops.
class NaiveNet {
 public:
  std::map<std::string, std::vector<double>> weights;

  /// Returns the sum of dy * y.
  double run(const Images& x, const std::vector<double>& dy, int groups) {
    const Images a = block("b0", x, 8, 16, 2, groups);
    const Images b = block("b1", a, 8, 16, 1, groups);
    return std::inner_product(b.values.begin(), b.values.end(), dy.begin(), 0.0);
  }

 private:
  Images block(const std::string& name, const Images& x, int width, int channels, int stride, int groups) {
    Images y;
    if (groups == 0) {  // A basic block.
      y = relu(norm(name + ".bn1", conv(name + ".conv1", x, channels, 3, stride, 1)));
      y = norm(name + ".bn2", conv(name + ".conv2", y, channels, 3, 1, 1));
    } else {
      y = relu(norm(name + ".bn1", conv(name + ".conv1", x, width, 1, 1, 1)));
      y = relu(norm(name + ".bn2", conv(name + ".conv2", y, width, 3, stride, groups)));
      y = norm(name + ".bn3", conv(name + ".conv3", y, channels, 1, 1, 1));
    }
    const Images shortcut =
        x.C == channels ? x : norm(name + ".downsample.1", conv(name + ".downsample.0", x, channels, 1, stride, 1));
    for (std::size_t i = 0; i < y.values.size(); ++i) {
      y.values[i] += shortcut.values[i];
    }
    return relu(y);
  }

  /// Convolves x, with padding that keeps the size at stride 1.
  Images conv(const std::string& name, const Images& x, int O, int S, int stride, int groups) {
    const std::vector<double>& w = weights.at(name + ".weight");
    const int C = x.C / groups;
    Images y{x.N, O, (x.H - 1) / stride + 1, (x.W - 1) / stride + 1, {}};
    y.values.resize(static_cast<std::size_t>(y.N * O * y.H * y.W));
    for (int k = 0; k < static_cast<int>(y.values.size()); ++k) {
      const int o = k / (y.W * y.H) % O;
      for (int tap = 0; tap < C * S * S; ++tap) {
        const int h = k / y.W % y.H * stride + tap / S % S - S / 2;
        const int v = k % y.W * stride + tap % S - S / 2;
        if (h >= 0 && h < x.H && v >= 0 && v < x.W) {
          const int channel = o / (O / groups) * C + tap / (S * S);
          y.values[static_cast<std::size_t>(k)] +=
              x.values[x.at(k / (y.W * y.H * O), channel, h, v)] * w[static_cast<std::size_t>(o * C * S * S + tap)];
        }
      }
    }
    return y;
  }

  Images norm(const std::string& name, Images x) {
    const double M = x.N * x.H * x.W;
    for (int c = 0; c < x.C; ++c) {
      std::vector<double*> channel;
      for (int k = 0; k < x.N * x.H * x.W; ++k) {
        channel.push_back(&x.values[x.at(k / (x.H * x.W), c, k / x.W % x.H, k % x.W)]);
      }
      double mean = 0;
      double variance = 0;
      for (const double* value : channel) {
        mean += *value / M;
      }
      for (const double* value : channel) {
        variance += (*value - mean) * (*value - mean) / M;
      }
      const auto at = static_cast<std::size_t>(c);
      for (double* value : channel) {
        *value = (*value - mean) / std::sqrt(variance + 1e-5) * weights.at(name + ".weight")[at] +
                 weights.at(name + ".bias")[at];
      }
    }
    return x;
  }

  static Images relu(Images x) {
    for (double& value : x.values) {
      value = std::max(value, 0.0);
    }
    return x;
  }
};

/// Takes the place of the number of groups for basic blocks.
constexpr int kBasic = 0;

/// Two blocks, of which the first has a stride and a shortcut. The parameter is the number of groups of their 3x3.
class TwoBlocks : public ::testing::TestWithParam<int> {
 protected:
  static constexpr int kN = 4, kC = 6, kS = 6;

  void SetUp() override {
    graph_.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}}}};
    Builder builder(graph_, {1, 0}, "");
    x_ = graph_.add_tensor({"x", {DataType::kF32, {kN, kC, kS, kS}, Layout::kChannelsLast}, Role::kStream});
    dy_ = graph_.add_tensor({"dy", {DataType::kF32, {kN, 16, 3, 3}, Layout::kChannelsLast}, Role::kStream});
    const auto block = [&](const std::string& name, TensorId x, std::int64_t stride) {
      return GetParam() == kBasic ? layers::basic_block(builder, name, x, 16, stride, {})
                                  : layers::bottleneck(builder, name, x, 8, 16, stride, GetParam(), {});
    };
    const TensorId y = block("b1", block("b0", x_, 2), 1);
    // sum(dy * y) is a linear layer of one row, whose weights are dy.
    const std::int64_t all = kN * 16 * 3 * 3;
    const auto row = [&](TensorId id, const char* name) {
      return builder.add_one("reshape", {id}, {{"shape", Shape{1, all}}, {"layout", std::string{"row-major"}}}, name);
    };
    const TensorId zero = builder.add_one("fill", {}, {{"shape", Shape{1}}, {"value", 0.0}}, "zero");
    const TensorId sum = builder.add_one("linear", {row(y, "y.row"), row(dy_, "dy.row"), zero}, {}, "sum");
    loss_ = builder.add_one("reshape", {sum}, {{"shape", Shape{}}, {"layout", std::string{"row-major"}}}, "loss");
    auto gradients =
        differentiate(builder, {{loss_, builder.add_one("fill", {}, {{"shape", Shape{}}, {"value", 1.0}}, "one")}});
    ASSERT_TRUE(gradients) << gradients.error().message;
    gradients_ = *gradients;
    operations_ = builder.operations();
  }

  /// Puts the same random values into the runner and the naive network.
  void fill(GraphRunner& runner) {
    std::mt19937 random(11);
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    for (std::uint32_t t = 0; t < graph_.tensors().size(); ++t) {
      const Tensor& tensor = graph_.tensors()[t];
      if (tensor.role == Role::kParameter || tensor.role == Role::kStream) {
        const bool scale = tensor.name.find("bn") != std::string::npos && tensor.name.ends_with(".weight");
        std::ranges::generate(runner.floats(TensorId{t}), [&] { return uniform(random) + (scale ? 2.0F : 0.0F); });
        const auto values = runner.floats(TensorId{t});
        naive_.weights[tensor.name].assign(values.begin(), values.end());
      }
    }
    images_ = {kN, kC, kS, kS, planes(runner.floats(x_), kC, kS * kS)};
    weighing_ = planes(runner.floats(dy_), 16, 9);
  }

  /// Reorders channels-last values to row-major.
  static std::vector<double> planes(std::span<const float> values, std::size_t C, std::size_t HW) {
    std::vector<double> result(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t pixel = i / C;
      result[(pixel / HW * C + i % C) * HW + pixel % HW] = static_cast<double>(values[i]);
    }
    return result;
  }

  double loss() { return naive_.run(images_, weighing_, GetParam()); }

  /// Returns (L(w + h) - L(w - h)) / 2h, with a step that crosses no kink of relu.
  double difference(double& w) {
    constexpr double kStep = 1e-7;
    const double kept = w;
    w = kept + kStep;
    const double above = loss();
    w = kept - kStep;
    const double below = loss();
    w = kept;
    return (above - below) / (2 * kStep);
  }

  Graph graph_;
  TensorId x_{}, dy_{}, loss_{};
  std::vector<ParameterGradient> gradients_;
  std::vector<Operation> operations_;
  NaiveNet naive_;
  Images images_{};
  std::vector<double> weighing_;
};

TEST_P(TwoBlocks, StepAgreesWithTheDefinitionInDouble) {
  GraphRunner runner(graph_);
  fill(runner);

  runner.run(operations_);

  EXPECT_NEAR(runner.floats(loss_)[0], loss(), 1e-4 * std::abs(loss()));
  ASSERT_EQ(gradients_.size(), 3U * (GetParam() == kBasic ? 5 : 7)) << "each is normalised";
  for (const auto& [parameter, gradient] : gradients_) {
    const std::string& name = graph_.tensor(parameter).name;
    const auto g = runner.floats(gradient);
    double largest = 0;
    for (const float value : g) {
      largest = std::max(largest, std::abs(static_cast<double>(value)));
    }
    EXPECT_GT(largest, 0.01) << name;
    for (std::size_t i = 0; i < g.size(); i += 1 + g.size() / 16) {
      EXPECT_NEAR(g[i], difference(naive_.weights.at(name)[i]), 1e-4 * largest) << name << "[" << i << "]";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, TwoBlocks, ::testing::Values(kBasic, 1, 4));

}  // namespace
}  // namespace poprun
