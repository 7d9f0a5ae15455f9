/// Products whose operands have rows that begin at equal places of pages. With AVX2, their kernels copy them.

#include <cmath>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "replica/ops/half/half_kernel.h"
#include "tests/unit/replica/graph_runner.h"
#include "tests/unit/replica/ops/products/product_uses.h"

namespace poprun::spread_rows_test {
namespace {

using product_uses::f32;
using product_uses::use;
using product_uses::Use;

/// A product of matrices a [G,M,K] and b [G,K,N], with the axes of each operand in the order in which it is stored.
struct Matrices {
  Use use;
  std::int64_t G, M, K, N;
  bool transposes_a;
  bool transposes_b;
  bool repeats_b = false;  ///< All G products have the same b.
};

std::vector<Matrices> products() {
  const auto matmul = [](Shape a, Shape b, bool transposes_a, bool transposes_b) {
    return use("matmul", {f32(std::move(a)), f32(std::move(b))},
               {{"transpose_a", std::int64_t{transposes_a}}, {"transpose_b", std::int64_t{transposes_b}}});
  };
  return {
      {matmul({40, 33}, {33, 1024}, false, false), 1, 40, 33, 1024, false, false},
      {matmul({70, 33}, {33, 512}, false, false), 1, 70, 33, 512, false, false},
      {matmul({33, 1024}, {33, 40}, true, false), 1, 1024, 33, 40, true, false},
      {matmul({33, 256}, {33, 256}, true, false), 1, 256, 33, 256, true, false},
      {matmul({2, 1024, 20}, {2, 1024, 36}, true, false), 2, 20, 1024, 36, true, false},
      {matmul({2, 36, 9}, {2, 9, 2048}, false, false), 2, 36, 9, 2048, false, false},
      {matmul({3, 9, 1024}, {9, 2048}, true, false), 3, 1024, 9, 2048, true, false, true},
      {matmul({40, 1024}, {1024, 1024}, false, true), 1, 40, 1024, 1024, false, true},
      {use("linear_weight_gradient", {f32({33, 1024}), f32({33, 256})}, {{"bias", std::int64_t{0}}}), 1, 256, 33, 1024,
       true, false},
      {use("linear_input_gradient", {f32({40, 33}), f32({33, 1024})}, {}), 1, 40, 33, 1024, false, false},
  };
}

TEST(SpreadRows, GiveTheResultOfTheDefinition) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> draw(-1, 1);
  for (const Matrices& p : products()) {
    Graph graph;
    Operation operation{.kind = p.use.kind, .inputs = {}, .outputs = {}, .attributes = p.use.signature.attributes};
    for (const TensorType& type : p.use.signature.inputs) {
      operation.inputs.push_back(
          graph.add_tensor({"x" + std::to_string(graph.tensors().size()), type, Role::kActivation}));
    }
    operation.outputs.push_back(graph.add_tensor({"y", p.use.signature.outputs[0], Role::kActivation}));
    testing::GraphRunner runner(graph);
    for (const TensorId id : operation.inputs) {
      std::ranges::generate(runner.floats(id), [&] { return draw(random); });
    }
    runner.run(operation);
    // A weight gradient's result [O,I] is dy^T x, and its inputs are x and dy.
    const bool swaps = p.use.kind == "linear_weight_gradient";
    const auto a = runner.floats(operation.inputs[swaps ? 1 : 0]);
    const auto b = runner.floats(operation.inputs[swaps ? 0 : 1]);
    const auto c = runner.floats(operation.outputs[0]);
    double worst = 0;
    for (std::int64_t g = 0; g < p.G; ++g) {
      const auto* of_a = a.data() + g * p.M * p.K;
      const auto* of_b = b.data() + (p.repeats_b ? 0 : g * p.K * p.N);
      for (std::int64_t m = 0; m < p.M; ++m) {
        for (std::int64_t n = 0; n < p.N; ++n) {
          double sum = 0;
          for (std::int64_t k = 0; k < p.K; ++k) {
            sum += static_cast<double>(of_a[p.transposes_a ? k * p.M + m : m * p.K + k]) *
                   static_cast<double>(of_b[p.transposes_b ? n * p.K + k : k * p.N + n]);
          }
          const float found = c[static_cast<std::size_t>((g * p.M + m) * p.N + n)];
          worst = std::max(worst, std::abs(sum - static_cast<double>(found)));
        }
      }
    }
    EXPECT_LT(worst, 1e-7 * static_cast<double>(p.K)) << p.use.kind << " " << p.M << " x " << p.K << " x " << p.N;
  }
}

}  // namespace
}  // namespace poprun::spread_rows_test
