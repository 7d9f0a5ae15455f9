#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "replica/device/product.h"

/// Products for tests and benchmarks of the planner.
namespace poprun::testing {

/// Returns a square convolution whose padding keeps the size at stride 1.
inline Product convolution(std::int64_t batch, std::int64_t in, std::int64_t out, std::int64_t size,
                           std::int64_t kernel, std::int64_t stride, std::int64_t groups, Arithmetic arithmetic) {
  const FieldDimension d{
      .input = size, .kernel = kernel, .output = (size - 1) / stride + 1, .stride = stride, .padding = kernel / 2};
  return {.arithmetic = arithmetic,
          .groups = groups,
          .batch = batch,
          .input_channels = in / groups,
          .output_channels = out / groups,
          .field = {d, d}};
}

inline Product matmul(std::int64_t groups, std::int64_t rows, std::int64_t inner, std::int64_t columns,
                      Arithmetic arithmetic) {
  return {.kind = ProductKind::kMatmul,
          .arithmetic = arithmetic,
          .groups = groups,
          .batch = rows,
          .input_channels = inner,
          .output_channels = columns};
}

/// A product of a model, and the number of layers that compute it.
struct Layer {
  Product product;
  std::int64_t times = 1;
};

/// Returns the forward products of a residual network of 50 layers with bottlenecks: torchvision's resnet50 (width 64,
/// 1 group) or resnext50_32x4d (width 128, 32 groups), on images of 224 x 224.
inline std::vector<Layer> residual_network_50(std::int64_t batch, std::int64_t width, std::int64_t groups,
                                              Arithmetic arithmetic) {
  std::vector<Layer> layers;
  const auto add = [&layers](const Product& product) {
    const auto known = std::ranges::find(layers, product, &Layer::product);
    if (known == layers.end()) {
      layers.push_back({product});
    } else {
      ++known->times;
    }
  };
  add(convolution(batch, 3, 64, 224, 7, 2, 1, arithmetic));
  std::int64_t in = 64;
  std::int64_t size = 56;
  std::int64_t stage = 0;
  for (const std::int64_t blocks : {3, 4, 6, 3}) {
    const std::int64_t inner = width << stage;
    const std::int64_t out = 256 << stage;
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t stride = block == 0 && stage > 0 ? 2 : 1;
      add(convolution(batch, in, inner, size, 1, 1, 1, arithmetic));
      add(convolution(batch, inner, inner, size, 3, stride, groups, arithmetic));
      if (block == 0) {
        add(convolution(batch, in, out, size, 1, stride, 1, arithmetic));
      }
      size /= stride;
      add(convolution(batch, inner, out, size, 1, 1, 1, arithmetic));
      in = out;
    }
    ++stage;
  }
  add(matmul(1, batch, 2048, 1000, arithmetic));
  return layers;
}

inline std::vector<Layer> resnet_50(std::int64_t batch, Arithmetic arithmetic) {
  return residual_network_50(batch, 64, 1, arithmetic);
}

inline std::vector<Layer> resnext_50(std::int64_t batch, Arithmetic arithmetic) {
  return residual_network_50(batch, 128, 32, arithmetic);
}

/// Returns the distinct products of a training step: all three passes, without the gradient of the images.
inline std::vector<Product> training_products(const std::vector<Layer>& layers) {
  std::vector<Product> products;
  for (const Layer& layer : layers) {
    products.push_back(layer.product);
    if (&layer != layers.data()) {
      products.push_back(input_gradient(layer.product));
    }
    products.push_back(weight_gradient(layer.product));
  }
  return products;
}

}  // namespace poprun::testing
