#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica/device/product.h"
#include "replica/ops/face/operator.h"
#include "tests/unit/replica/ops/products/product_uses.h"

namespace poprun::operator_product_test {
namespace {

using product_uses::Convolution;
using product_uses::f32;
using product_uses::Integers;
using product_uses::product_of;
using product_uses::use;
using product_uses::Use;

/// Returns convolutions that vary everything that changes a loop's bounds.
std::vector<Convolution> convolutions() {
  return {
      {2, 3, 4, 1, {5, 6}, {1, 1}},
      {2, 3, 4, 1, {5, 6}, {3, 2}},
      {2, 4, 6, 2, {5, 6}, {3, 3}, {1, 1}, {1, 1, 1, 1}},
      {1, 3, 8, 1, {14, 14}, {7, 7}, {2, 2}, {3, 3, 3, 3}},
      {3, 4, 4, 4, {9, 7}, {3, 3}, {2, 1}, {1, 0, 1, 2}},
      {1, 2, 5, 1, {8, 8}, {1, 1}, {2, 2}},
      {1, 2, 5, 1, {11, 12}, {3, 2}, {1, 2}, {2, 0, 1, 1}, {2, 3}},
      {1, 1, 1, 1, {1, 10}, {1, 4}, {1, 3}, {2, 5, 0, 0}},
  };
}

std::vector<Use> dense_uses() {
  const Attributes bias{{"bias", std::int64_t{1}}};
  const Attributes input_major{{"input_major", std::int64_t{1}}};
  return {
      use("linear", {f32({2, 3, 5}), f32({7, 5}), f32({7})}, {}),
      use("linear", {f32({4, 5}), f32({5, 7})}, input_major),
      use("linear_input_gradient", {f32({2, 3, 7}), f32({7, 5})}, {}),
      use("linear_input_gradient", {f32({4, 7}), f32({5, 7})}, input_major),
      use("linear_weight_gradient", {f32({2, 3, 5}), f32({2, 3, 7})}, bias),
      use("matmul", {f32({4, 5}), f32({5, 6})}, {}),
      use("matmul", {f32({2, 3, 4, 5}), f32({5, 6})}, {}),
      use("matmul", {f32({2, 3, 4, 5}), f32({2, 3, 6, 5})}, {{"transpose_b", std::int64_t{1}}}),
      use("matmul", {f32({3, 5, 4}), f32({5, 6})}, {{"transpose_a", std::int64_t{1}}}),
      use("matmul", {f32({2, 1, 4, 5}), f32({3, 5, 6})}, {}),
  };
}

/// Counts the multiplications of two existing operands, by the loops of Product's definition.
std::int64_t loop_nest(const Product& p) {
  std::array<std::int64_t, 2> pairs = {0, 0};
  for (std::size_t d = 0; d < 2; ++d) {
    const FieldDimension& f = p.field[d];
    for (std::int64_t y = 0; y < f.output; ++y) {
      for (std::int64_t k = 0; k < f.kernel; ++k) {
        const std::int64_t place = y * f.stride + k * f.kernel_dilation - f.padding;
        for (std::int64_t i = 0; i < f.input; ++i) {
          pairs[d] += place == i * f.input_dilation ? 1 : 0;
        }
      }
    }
  }
  return pairs[0] * pairs[1] * p.groups * p.batch * p.input_channels * p.output_channels;
}

TEST(OperatorProduct, CountsTheMacsOfTheOperatorsWork) {
  std::vector<Use> uses = dense_uses();
  for (const Convolution& convolution : convolutions()) {
    std::ranges::copy(convolution.passes(), std::back_inserter(uses));
  }
  for (const Use& use : uses) {
    const Operator* op = find_operator(use.kind);
    EXPECT_EQ(product_of(use).macs(), op->work(use.signature).macs) << use.kind << ": " << to_text(product_of(use));
  }
}

TEST(OperatorProduct, EveryOperatorWithMacsHasAProduct) {
  std::vector<std::string> with_product;
  for (const Operator& op : all_operators()) {
    if (op.product != nullptr) {
      with_product.push_back(op.kind);
    }
  }
  EXPECT_THAT(with_product,
              ::testing::ElementsAre("conv2d", "conv2d_input_gradient", "conv2d_weight_gradient", "linear",
                                     "linear_input_gradient", "linear_weight_gradient", "matmul"));
}

TEST(OperatorProduct, MultipliesTheSamePairsInAllThreePassesAsTheDefinition) {
  for (const Convolution& convolution : convolutions()) {
    for (const Use& pass : convolution.passes()) {
      const Product product = product_of(pass);
      EXPECT_EQ(product.useful_macs(), convolution.useful_macs()) << to_text(product);
      EXPECT_EQ(loop_nest(product), convolution.useful_macs()) << to_text(product);
    }
  }
}

TEST(OperatorProduct, ReadsOperand0AsInputAndOperand1AsWeights) {
  std::vector<Use> uses = dense_uses();
  uses.erase(uses.end() - 1);  // Its first operand is broadcast.
  for (const Convolution& convolution : convolutions()) {
    std::ranges::copy(convolution.passes(), std::back_inserter(uses));
  }
  for (const Use& use : uses) {
    if (use.kind == "matmul" && use.signature.inputs[1].shape.size() == 2 &&
        use.signature.attributes.has("transpose_a")) {
      continue;  // Its second operand is broadcast.
    }
    const Product p = product_of(use);
    EXPECT_EQ(p.input_elements(), use.signature.inputs[0].elements()) << to_text(p);
    EXPECT_EQ(p.weight_elements(), use.signature.inputs[1].elements()) << to_text(p);
    EXPECT_EQ(p.groups * p.batch * p.output_channels * p.field[0].output * p.field[1].output,
              use.signature.outputs[0].elements())
        << to_text(p);
  }
}

TEST(OperatorProduct, OfAGradientFollowsFromThatOfTheForwardPass) {
  const Product dense = product_of(use("linear", {f32({2, 3, 5}), f32({7, 5})}, {}));
  EXPECT_EQ(product_of(use("linear_input_gradient", {f32({2, 3, 7}), f32({7, 5})}, {})), input_gradient(dense));
  EXPECT_EQ(product_of(use("linear_weight_gradient", {f32({2, 3, 5}), f32({2, 3, 7})}, {{"bias", std::int64_t{0}}})),
            weight_gradient(dense));
  for (const Convolution& convolution : convolutions()) {
    const Product forward = product_of(convolution.forward());
    EXPECT_EQ(product_of(convolution.input_gradient()), input_gradient(forward));
    EXPECT_EQ(product_of(convolution.weight_gradient()), weight_gradient(forward));
  }
}

TEST(OperatorProduct, IsWrittenOutForAStridedConvolution) {
  const Convolution stem{8, 3, 64, 1, {224, 224}, {7, 7}, {2, 2}, {3, 3, 3, 3}};

  EXPECT_EQ(to_text(product_of(stem.forward())),
            "conv forward f32: batch 8, 3 -> 64 channels, 224x224 * 7x7 / 2, padding 3 -> 112x112");
  EXPECT_EQ(to_text(product_of(stem.input_gradient())),
            "conv input gradient f32: batch 8, 64 -> 3 channels, 112x112 * 7x7, padding 3, "
            "input dilation 2 -> 224x224");
  EXPECT_EQ(to_text(product_of(stem.weight_gradient())),
            "conv weight gradient f32: batch 3, 8 -> 64 channels, 224x224 * 112x112, padding 3, "
            "kernel dilation 2 -> 7x7");
}

TEST(OperatorProduct, ComputesInWhatIsStored) {
  Use use = dense_uses()[0];
  EXPECT_EQ(product_of(use).arithmetic, Arithmetic::kF32);
  for (TensorType& type : use.signature.inputs) {
    type.data = DataType::kF16;
  }
  use.signature.outputs[0].data = DataType::kF16;
  EXPECT_EQ(product_of(use).arithmetic, Arithmetic::kF16);
  use.signature.attributes.set("partials", std::string{"half"});
  EXPECT_EQ(product_of(use).arithmetic, Arithmetic::kF16PartialsF16);
}

TEST(Product, DistinguishesEveryField) {
  // Each variant differs from the first in one number, so the order, the hash and the text must tell any two variants
  // apart.
  std::vector<Product> variants(1);
  const auto add = [&variants](auto change) {
    variants.emplace_back();
    change(variants.back());
  };
  add([](Product& p) { p.kind = ProductKind::kMatmul; });
  add([](Product& p) { p.pass = ProductPass::kInputGradient; });
  add([](Product& p) { p.arithmetic = Arithmetic::kF16; });
  add([](Product& p) { p.groups = 2; });
  add([](Product& p) { p.batch = 2; });
  add([](Product& p) { p.input_channels = 2; });
  add([](Product& p) { p.output_channels = 2; });
  for (std::size_t d = 0; d < 2; ++d) {
    add([d](Product& p) { p.field[d].input = 2; });
    add([d](Product& p) { p.field[d].kernel = 2; });
    add([d](Product& p) { p.field[d].output = 2; });
    add([d](Product& p) { p.field[d].stride = 2; });
    add([d](Product& p) { p.field[d].input_dilation = 2; });
    add([d](Product& p) { p.field[d].kernel_dilation = 2; });
    add([d](Product& p) { p.field[d].padding = 2; });
  }
  for (std::size_t a = 0; a < variants.size(); ++a) {
    for (std::size_t b = 0; b < variants.size(); ++b) {
      EXPECT_EQ(variants[a] == variants[b], a == b);
      EXPECT_EQ(to_text(variants[a]) == to_text(variants[b]), a == b) << to_text(variants[a]);
      EXPECT_EQ(ProductHash{}(variants[a]) == ProductHash{}(variants[b]), a == b);
    }
  }
}

}  // namespace
}  // namespace poprun::operator_product_test
