#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "replica/device/product.h"
#include "replica/ops/face/operator.h"

/// Uses of the operators that are sums of products.
namespace poprun::product_uses {

using Integers = std::vector<std::int64_t>;

inline TensorType f32(Shape shape) {
  return {DataType::kF32, std::move(shape), {}};
}

inline TensorType image(Shape shape) {
  return {DataType::kF32, std::move(shape), Layout::kChannelsLast};
}

struct Use {
  std::string kind;
  Signature signature;
};

/// Returns a use of an operator, with the outputs from shape inference.
inline Use use(const std::string& kind, std::vector<TensorType> inputs, Attributes attributes) {
  Use made{kind, {std::move(inputs), {}, std::move(attributes)}};
  const auto outputs = find_operator(kind)->shape(made.signature);
  EXPECT_TRUE(outputs.has_value()) << (outputs ? "" : outputs.error().message);
  made.signature.outputs = outputs.value_or(std::vector<TensorType>{});
  return made;
}

inline Product product_of(const Use& use) {
  return find_operator(use.kind)->product(use.signature);
}

struct Convolution {
  std::int64_t images;
  std::int64_t in;
  std::int64_t out;
  std::int64_t groups;
  std::array<std::int64_t, 2> field;
  std::array<std::int64_t, 2> kernel;
  Integers stride = {1, 1};
  Integers pad = {0, 0, 0, 0};
  Integers dilation = {1, 1};

  [[nodiscard]] Attributes attributes() const {
    return {{"stride", stride}, {"pad", pad}, {"dilation", dilation}, {"groups", groups}};
  }
  [[nodiscard]] TensorType x() const { return image({images, in, field[0], field[1]}); }
  [[nodiscard]] TensorType w() const { return f32({out, in / groups, kernel[0], kernel[1]}); }

  [[nodiscard]] Use forward() const { return use("conv2d", {x(), w()}, attributes()); }
  [[nodiscard]] TensorType y() const { return forward().signature.outputs[0]; }
  [[nodiscard]] Use input_gradient() const {
    Attributes a = attributes();
    a.set("input_shape", x().shape);
    return use("conv2d_input_gradient", {y(), w()}, a);
  }
  [[nodiscard]] Use weight_gradient() const {
    Attributes a = attributes();
    a.set("kernel", Integers{kernel[0], kernel[1]});
    a.set("bias", std::int64_t{0});
    return use("conv2d_weight_gradient", {x(), y()}, a);
  }
  [[nodiscard]] std::vector<Use> passes() const { return {forward(), input_gradient(), weight_gradient()}; }

  /// Counts the multiplications of two existing operands, by the definition of a convolution.
  [[nodiscard]] std::int64_t useful_macs() const {
    const Shape out_shape = y().shape;
    std::int64_t count = 0;
    for (std::int64_t Y = 0; Y < out_shape[2]; ++Y) {
      for (std::int64_t X = 0; X < out_shape[3]; ++X) {
        for (std::int64_t R = 0; R < kernel[0]; ++R) {
          for (std::int64_t S = 0; S < kernel[1]; ++S) {
            const std::int64_t h = Y * stride[0] - pad[0] + R * dilation[0];
            const std::int64_t v = X * stride[1] - pad[1] + S * dilation[1];
            count += h >= 0 && h < field[0] && v >= 0 && v < field[1] ? 1 : 0;
          }
        }
      }
    }
    return count * images * out * in / groups;
  }
};

}  // namespace poprun::product_uses
