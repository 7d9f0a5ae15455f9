/// Gradients through rows that are gathered from all replicas: those of the contrastive loss of all replicas' pairs
/// equal finite differences, and those of one replica that has all pairs.

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/compiler/arithmetic/differentiation.h"
#include "replica/machine/machine.h"
#include "replica/machine/operations.h"
#include "replica/models/layers/losses.h"
#include "tests/unit/replica/graph_runner.h"

namespace poprun::gathered_rows_test {
namespace {

constexpr std::int64_t kFeatures = 3;
constexpr std::int64_t kWidth = 4;

using Numbers = std::vector<double>;

TensorType f32(Shape shape) {
  return {DataType::kF32, std::move(shape), Layout::kRowMajor};
}

/// A model of two dense layers, whose outputs are the two sides of the pairs, and of a factor; and its derivative.
struct Model {
  Model(std::int64_t shared_by, std::int64_t pairs) : replicas(shared_by) {
    graph.functions = {{"load", {{1, {}}}}, {"train", {{1, {}}}}};
    Builder builder(graph, {1, 0}, "");
    const TensorType labelled{DataType::kI32, {pairs}, Layout::kRowMajor};
    const auto inputs = builder.stream_in("train", {"x", "labels"}, {f32({pairs, kFeatures}), labelled});
    x = inputs[0];
    labels = inputs[1];
    const auto parameter = [&](const std::string& name, Shape shape) {
      weights.push_back(builder.variable(name, f32(std::move(shape)), Role::kParameter, {}));
      return weights.back();
    };
    const TensorId left = builder.add_one("linear", {x, parameter("a", {kWidth, kFeatures})}, {}, "left");
    const TensorId right = builder.add_one("linear", {x, parameter("b", {kWidth, kFeatures})}, {}, "right");
    const ModelOutputs outputs = layers::global_contrastive_loss(
        builder, "loss", "model.loss", {left, right, parameter("factor", {})}, labels, shared_by);
    loss = outputs.loss;
    count = outputs.count;
    scale = builder.add_one("fill", {}, {{"shape", Shape{}}, {"value", 1.0}}, "scale");
    EXPECT_TRUE(builder.status()) << builder.status().error().message;
    auto found = differentiate(builder, {{loss, scale}});
    EXPECT_TRUE(found) << found.error().message;
    gradients = *found;
  }

  Graph graph;
  std::int64_t replicas;
  TensorId x{};
  TensorId labels{};
  TensorId loss{};
  TensorId count{};
  TensorId scale{};
  std::vector<TensorId> weights;
  std::vector<ParameterGradient> gradients;
};

/// Runs replicas in step.
class World {
 public:
  explicit World(const Model& model) : model_(model) {
    for (std::int64_t r = 0; r < model.replicas; ++r) {
      replicas_.push_back(std::make_unique<testing::GraphRunner>(model.graph));
      replicas_.back()->run(constants());
    }
  }

  /// Divides the rows of x and the labels among the replicas, and sets the weights on all of them.
  void set(const std::vector<float>& x, const std::vector<std::int32_t>& labels,
           const std::vector<std::vector<float>>& weights) {
    for (std::size_t r = 0; r < replicas_.size(); ++r) {
      const std::size_t rows = labels.size() / replicas_.size();
      std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(r * rows * kFeatures), rows * kFeatures,
                  replicas_[r]->floats(model_.x).begin());
      std::copy_n(labels.begin() + static_cast<std::ptrdiff_t>(r * rows), rows,
                  reinterpret_cast<std::int32_t*>(replicas_[r]->bytes(model_.labels)));  // NOLINT: an i32 tensor.
      for (std::size_t k = 0; k < weights.size(); ++k) {
        std::ranges::copy(weights[k], replicas_[r]->floats(model_.weights[k]).begin());
      }
    }
  }

  void run() {
    for (const Operation& operation : model_.graph.at({1, 0}).operations) {
      if (StreamIn::is(operation)) {
        continue;
      }
      if (find_machine_operation(operation.kind) != nullptr) {
        ASSERT_TRUE(find_machine_operation(operation.kind)->verify(model_.graph, operation));
        exchange(operation);
        continue;
      }
      for (const auto& replica : replicas_) {
        replica->run(operation);
      }
    }
  }

  /// Returns the mean over all pairs that count.
  [[nodiscard]] double loss() const {
    double sum = 0;
    double count = 0;
    for (const auto& replica : replicas_) {
      sum += double{replica->floats(model_.loss)[0]} * replica->floats(model_.count)[0];
      count += replica->floats(model_.count)[0];
    }
    return sum / count;
  }

  /// Returns the mean of the replicas' gradients of weight k.
  [[nodiscard]] Numbers gradient(std::size_t k) const {
    Numbers mean;
    for (const auto& replica : replicas_) {
      for (const ParameterGradient& pair : model_.gradients) {
        if (pair.parameter == model_.weights[k]) {
          const auto own = replica->floats(pair.gradient);
          mean.resize(own.size());
          std::ranges::transform(mean, own, mean.begin(),
                                 [&](double m, float g) { return m + g / static_cast<double>(replicas_.size()); });
        }
      }
    }
    return mean;
  }

 private:
  [[nodiscard]] std::vector<Operation> constants() const {
    std::vector<Operation> found;
    std::ranges::copy_if(model_.graph.at(model_.graph.load()).operations, std::back_inserter(found),
                         [](const Operation& o) { return o.kind == "constant"; });
    return found;
  }

  /// Does what the operations' comments in machine/operations.h say.
  void exchange(const Operation& operation) {
    const TensorId from = operation.inputs[0];
    const TensorId to = operation.outputs[0];
    const auto bytes = [&](TensorId id) {
      return static_cast<std::size_t>(model_.graph.tensor(id).type.bytes().count());
    };
    for (std::size_t r = 0; r < replicas_.size(); ++r) {
      std::byte* target = replicas_[r]->bytes(to);
      if (OwnRows::is(operation)) {
        std::copy_n(replicas_[r]->bytes(from) + r * bytes(to), bytes(to), target);
        continue;
      }
      if (GatherRows::is(operation)) {
        for (std::size_t s = 0; s < replicas_.size(); ++s) {
          std::copy_n(replicas_[s]->bytes(from), bytes(from), target + s * bytes(from));
        }
        continue;
      }
      ASSERT_TRUE(ScatterRows::is(operation));
      const std::size_t count = bytes(to) / sizeof(float);
      for (std::size_t i = 0; i < count; ++i) {
        float sum = 0;
        for (const auto& peer : replicas_) {
          sum += peer->floats(from)[r * count + i];
        }
        replicas_[r]->floats(to)[i] = sum;
      }
    }
  }

  const Model& model_;
  std::vector<std::unique_ptr<testing::GraphRunner>> replicas_;
};

/// Returns weights and features with some structure, so that the loss is far from its extremes.
struct Drawn {
  explicit Drawn(std::int64_t pairs) : x(static_cast<std::size_t>(pairs * kFeatures)) {
    std::mt19937 random(7);
    std::uniform_real_distribution<float> number(-1, 1);
    const auto draw = [&] { return number(random); };
    std::ranges::generate(x, draw);
    std::ranges::generate(weights[0], draw);
    std::ranges::generate(weights[1], draw);
  }

  std::vector<float> x;
  std::vector<std::vector<float>> weights{
      std::vector<float>(kWidth * kFeatures), std::vector<float>(kWidth* kFeatures), {1.5F}};
};

TEST(GatheredRows, GiveTheGradientsOfAllPairs) {
  constexpr std::int64_t kPairs = 6;
  const Drawn drawn(kPairs);
  const std::vector<std::int32_t> labels(kPairs, 0);
  const Model one(1, kPairs);
  World alone(one);
  alone.set(drawn.x, labels, drawn.weights);
  alone.run();
  for (const std::int64_t replicas : {2, 3}) {
    const Model model(replicas, kPairs / replicas);
    World world(model);
    world.set(drawn.x, labels, drawn.weights);
    world.run();
    EXPECT_NEAR(world.loss(), alone.loss(), 1e-6);
    for (std::size_t k = 0; k < drawn.weights.size(); ++k) {
      EXPECT_THAT(world.gradient(k), ::testing::Pointwise(::testing::DoubleNear(1e-6), alone.gradient(k))) << k;
    }
  }
}

TEST(GatheredRows, GiveTheGradientsOfFiniteDifferences) {
  constexpr std::int64_t kPairs = 6;
  constexpr float kStep = 0x1p-6;
  Drawn drawn(kPairs);
  const std::vector<std::int32_t> labels(kPairs, 0);
  const Model model(2, kPairs / 2);
  World world(model);
  world.set(drawn.x, labels, drawn.weights);
  world.run();
  for (std::size_t k = 0; k < drawn.weights.size(); ++k) {
    const Numbers gradient = world.gradient(k);
    ASSERT_EQ(gradient.size(), drawn.weights[k].size());
    double largest = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      World moved(model);
      float& weight = drawn.weights[k][i];
      const float before = weight;
      Numbers losses;
      for (const float step : {kStep, -kStep}) {
        weight = before + step;
        moved.set(drawn.x, labels, drawn.weights);
        moved.run();
        losses.push_back(moved.loss());
      }
      weight = before;
      EXPECT_NEAR(gradient[i], (losses[0] - losses[1]) / (2 * kStep), 2e-4) << k << " " << i;
      largest = std::max(largest, std::abs(gradient[i]));
    }
    EXPECT_GT(largest, 0.02) << "nothing is tested";
  }
}

/// Pairs with negative labels are neither rows nor classes, on whichever replica they are.
TEST(GatheredRows, LeaveOutPairsThatDoNotCount) {
  constexpr std::int64_t kPairs = 6;
  const Drawn drawn(kPairs);
  const std::vector<std::int32_t> labels{0, -1, 0, 0, 0, -1};  // As many count on both replicas.
  Drawn counted = drawn;
  counted.x.erase(counted.x.begin() + 5 * kFeatures, counted.x.end());
  counted.x.erase(counted.x.begin() + kFeatures, counted.x.begin() + 2 * kFeatures);
  const Model one(1, 4);
  World alone(one);
  alone.set(counted.x, {0, 0, 0, 0}, drawn.weights);
  alone.run();
  const Model model(2, kPairs / 2);
  World world(model);
  world.set(drawn.x, labels, drawn.weights);
  world.run();
  EXPECT_NEAR(world.loss(), alone.loss(), 1e-6);
  for (std::size_t k = 0; k < drawn.weights.size(); ++k) {
    EXPECT_THAT(world.gradient(k), ::testing::Pointwise(::testing::DoubleNear(1e-6), alone.gradient(k))) << k;
  }
}

}  // namespace
}  // namespace poprun::gathered_rows_test
