#pragma once

#include <algorithm>
#include <cstdint>
#include <random>

#include "replica/device/device.h"
#include "replica/device/product.h"
#include "tests/unit/replica/compiler/planner/products.h"

namespace poprun::testing {

/// Returns an Mk2 with so few tiles that all plans can be enumerated.
inline Device few_tiles(std::int64_t tiles) {
  Device device = *find_device("mk2");
  device.tiles = tiles;
  return device;
}

/// Returns a random convolution, gradient of a convolution, or matmul, with any kind of stride, dilation, padding and
/// grouping, and sizes up to about `most`.
inline Product random_product(std::mt19937& random, std::int64_t most) {
  const auto any = [&random](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  const auto arithmetic = static_cast<Arithmetic>(any(0, 2));
  if (any(0, 4) == 0) {
    return matmul(any(1, 3), any(1, 3 * most), any(1, 4 * most), any(1, 4 * most), arithmetic);
  }
  Product p;
  p.arithmetic = arithmetic;
  p.groups = any(0, 1) == 0 ? 1 : any(1, most);
  p.batch = any(1, most / 2);
  p.input_channels = p.groups > 1 ? any(1, 4) : any(1, 3 * most);
  p.output_channels = any(0, 2) == 0 ? p.input_channels : any(1, p.groups > 1 ? 4 : 3 * most);
  for (FieldDimension& d : p.field) {
    d.input = any(1, most);
    d.kernel = any(0, 1) == 0 ? 1 : any(1, 5);
    d.stride = any(0, 1) == 0 ? 1 : any(1, 3);
    d.kernel_dilation = any(0, 3) == 0 ? 2 : 1;
    const std::int64_t reach = (d.kernel - 1) * d.kernel_dilation + 1;
    d.padding = any(0, reach / 2);
    // The kernel must fit, so that there is at least one output.
    d.input = std::max(d.input, reach);
    d.output = (d.input + 2 * d.padding - reach) / d.stride + 1;
  }
  switch (any(0, 2)) {
    case 1:
      return input_gradient(p);
    case 2:
      return weight_gradient(p);
    default:
      return p;
  }
}

}  // namespace poprun::testing
