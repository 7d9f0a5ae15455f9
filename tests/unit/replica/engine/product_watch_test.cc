#include "replica/engine/product_watch.h"

#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "replica/engine/value_judge.h"
#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/ops/products/product_uses.h"

namespace poprun::product_watch_test {
namespace {

using product_uses::Convolution;
using product_uses::f32;
using product_uses::use;
using product_uses::Use;

constexpr float kInfinite = std::numeric_limits<float>::infinity();

/// Returns uses of every product whose results are so large that a watch is worth it.
std::vector<Use> large_uses() {
  const Attributes bias{{"bias", std::int64_t{1}}};
  const Attributes input_major{{"input_major", std::int64_t{1}}};
  std::vector<Use> all = {
      use("linear", {f32({2, 40, 5}), f32({70, 5}), f32({70})}, {}),
      use("linear", {f32({60, 5}), f32({5, 70})}, input_major),
      use("linear_input_gradient", {f32({2, 30, 7}), f32({7, 64})}, {}),
      use("linear_input_gradient", {f32({50, 7}), f32({64, 7})}, input_major),
      use("linear_weight_gradient", {f32({2, 3, 64}), f32({2, 3, 70})}, bias),
      use("matmul", {f32({40, 5}), f32({5, 66})}, {}),
      use("matmul", {f32({2, 3, 40, 5}), f32({5, 66})}, {}),
      use("matmul", {f32({2, 3, 40, 5}), f32({2, 3, 66, 5})}, {{"transpose_b", std::int64_t{1}}}),
      use("matmul", {f32({3, 5, 40}), f32({5, 66})}, {{"transpose_a", std::int64_t{1}}}),
      use("matmul", {f32({2, 1, 40, 5}), f32({3, 5, 66})}, {}),
  };
  const std::vector<Convolution> convolutions = {
      {20, 48, 64, 1, {5, 6}, {1, 1}},
      {20, 48, 64, 1, {5, 6}, {3, 2}},
      {20, 96, 128, 2, {3, 4}, {3, 3}, {1, 1}, {1, 1, 1, 1}},
      {20, 64, 64, 1, {6, 6}, {1, 1}, {2, 2}},
      {20, 64, 64, 1, {7, 8}, {3, 2}, {1, 2}, {2, 0, 1, 1}, {2, 3}},
  };
  for (const Convolution& convolution : convolutions) {
    for (Use& pass : convolution.passes()) {
      all.push_back(std::move(pass));
    }
  }
  return all;
}

/// Runs a use with one kernel, and compares what a watch says with a search of the whole result.
class Watched {
 public:
  explicit Watched(const Use& use) : use_(use), runner_(graph_of(use)) {
    watch_ = ProductWatch::of(*find_operator(use.kind), use.signature);
  }

  [[nodiscard]] bool exists() const { return watch_.has_value(); }
  /// Returns whether the watch was sure in the last run that the result is finite.
  [[nodiscard]] bool is_sure() const { return is_sure_; }
  [[nodiscard]] std::span<float> input(std::size_t i) { return runner_.floats(operation_.inputs.at(i)); }

  void fill(const std::function<float()>& value) {
    for (std::size_t i = 0; i < operation_.inputs.size(); ++i) {
      std::ranges::generate(input(i), value);
    }
  }

  /// Returns whether the result is finite. A kernel may compute more than the result and so overflow for nothing, but
  /// it must not overflow unheard.
  bool run() {
    ProductWatch::begin();
    runner_.run(operation_);
    const std::span<const float> result = runner_.floats(operation_.outputs[0]);
    is_sure_ = watch_->is_finite(result.data());
    const bool is_finite = !find_not_finite(use_.signature.outputs[0], std::as_bytes(result));
    EXPECT_FALSE(is_sure_ && !is_finite) << use_.kind;
    return is_finite;
  }

 private:
  const Graph& graph_of(const Use& use) {
    const auto add = [this](const std::string& name, const TensorType& type) {
      return graph_.add_tensor({name + std::to_string(graph_.tensors().size()), type, Role::kActivation});
    };
    operation_.kind = use.kind;
    operation_.attributes = use.signature.attributes;
    for (const TensorType& type : use.signature.inputs) {
      operation_.inputs.push_back(add("x", type));
    }
    for (const TensorType& type : use.signature.outputs) {
      operation_.outputs.push_back(add("y", type));
    }
    return graph_;
  }

  const Use& use_;
  Graph graph_;
  Operation operation_;
  testing::GraphRunner runner_;
  std::optional<ProductWatch> watch_;
  bool is_sure_ = false;
};

class ProductWatchTest : public ::testing::Test {
 protected:
  float number() { return std::uniform_real_distribution<float>(-1, 1)(random_); }
  std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }

  std::mt19937 random_{37};
};

TEST_F(ProductWatchTest, SeesAnyElementOfAnOperandThatIsNotFinite) {
  for (const Use& large : large_uses()) {
    Watched watched(large);
    ASSERT_TRUE(watched.exists()) << large.kind;
    watched.fill([&] { return number(); });
    watched.run();
    EXPECT_TRUE(watched.is_sure()) << large.kind;
    for (std::size_t i = 0; i < large.signature.inputs.size(); ++i) {
      for (const float wrong : {std::nanf(""), kInfinite, -kInfinite}) {
        for (int trial = 0; trial < 4; ++trial) {
          float& element = watched.input(i)[below(watched.input(i).size())];
          const float right = std::exchange(element, wrong);
          watched.run();
          element = right;
        }
      }
    }
  }
}

TEST_F(ProductWatchTest, HearsAFewResultsThatOverflow) {
  for (const Use& large : large_uses()) {
    Watched watched(large);
    ASSERT_TRUE(watched.exists()) << large.kind;
    int overflows = 0;
    for (int trial = 0; trial < 400 && overflows < 3; ++trial) {
      watched.fill([] { return 0.0F; });
      watched.input(0)[below(watched.input(0).size())] = 1e30F;
      for (int k = 0; k < 20; ++k) {
        watched.input(1)[below(watched.input(1).size())] = 1e30F;
      }
      overflows += watched.run() ? 0 : 1;
    }
    EXPECT_GT(overflows, 0) << large.kind;
  }
}

TEST_F(ProductWatchTest, ForgetsWhatHappenedBefore) {
  const Use product = use("matmul", {f32({40, 5}), f32({5, 66})}, {});
  Watched watched(product);
  ASSERT_TRUE(watched.exists());
  watched.fill([&] { return 1e30F; });
  EXPECT_FALSE(watched.run());
  watched.fill([&] { return number(); });
  watched.run();
  EXPECT_TRUE(watched.is_sure());
}

TEST_F(ProductWatchTest, IsNotWorthItForSmallResults) {
  const auto is_watched = [](const Use& u) { return Watched(u).exists(); };
  EXPECT_FALSE(is_watched(use("matmul", {f32({40, 5}), f32({5, 8})}, {})));
  EXPECT_FALSE(is_watched(use("matmul", {f32({2, 5}), f32({5, 66})}, {})));
  EXPECT_FALSE(is_watched(Convolution{20, 48, 8, 1, {5, 6}, {3, 2}}.forward()));
}

}  // namespace
}  // namespace poprun::product_watch_test
