#include "replica/compiler/planner/view.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/replica/compiler/planner/random_products.h"

namespace poprun::planner::view_test {
namespace {

using ::testing::ElementsAre;

/// A dense array with five dimensions.
struct Array {
  std::array<std::int64_t, 5> shape;
  std::vector<std::int64_t> values;

  explicit Array(const std::array<std::int64_t, 5>& of_shape) : shape(of_shape) {
    std::int64_t size = 1;
    for (const std::int64_t n : shape) {
      size *= n;
    }
    values.resize(static_cast<std::size_t>(size));
  }
  std::int64_t& operator()(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d, std::int64_t e) {
    return values[static_cast<std::size_t>((((a * shape[1] + b) * shape[2] + c) * shape[3] + d) * shape[4] + e)];
  }
};

/// Input [batch, group, channel, h, w], weights [group, out, in, r, s], output [batch, group, out, y, x] of a product.
struct Operands {
  Array input;
  Array weights;
};

Operands zeros(const Product& p) {
  return {Array({p.batch, p.groups, p.input_channels, p.field[0].input, p.field[1].input}),
          Array({p.groups, p.output_channels, p.input_channels, p.field[0].kernel, p.field[1].kernel})};
}

/// Returns the input element that output y multiplies by kernel element k in a dimension, or -1.
std::int64_t met(const FieldDimension& d, std::int64_t y, std::int64_t k) {
  const std::int64_t place = y * d.stride + k * d.kernel_dilation - d.padding;
  const bool exists = place >= 0 && place % d.input_dilation == 0 && place / d.input_dilation < d.input;
  return exists ? place / d.input_dilation : -1;
}

/// Computes a product by its definition in product.h.
Array compute(const Product& p, Operands& o) {
  Array out({p.batch, p.groups, p.output_channels, p.field[0].output, p.field[1].output});
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t g = 0; g < p.groups; ++g) {
      for (std::int64_t c = 0; c < p.output_channels; ++c) {
        for (std::int64_t y = 0; y < p.field[0].output; ++y) {
          for (std::int64_t x = 0; x < p.field[1].output; ++x) {
            for (std::int64_t r = 0; r < p.field[0].kernel; ++r) {
              for (std::int64_t s = 0; s < p.field[1].kernel; ++s) {
                const std::int64_t h = met(p.field[0], y, r);
                const std::int64_t w = met(p.field[1], x, s);
                for (std::int64_t i = 0; h >= 0 && w >= 0 && i < p.input_channels; ++i) {
                  out(b, g, c, y, x) += o.input(b, g, i, h, w) * o.weights(g, c, i, r, s);
                }
              }
            }
          }
        }
      }
    }
  }
  return out;
}

/// [a, b, c, d, e] -> [c, b, a, reversed d, reversed e].
Array swapped_output(Array& out) {
  const auto& n = out.shape;
  Array swapped({n[2], n[1], n[0], n[3], n[4]});
  for (std::int64_t a = 0; a < n[0]; ++a) {
    for (std::int64_t b = 0; b < n[1]; ++b) {
      for (std::int64_t c = 0; c < n[2]; ++c) {
        for (std::int64_t d = 0; d < n[3]; ++d) {
          for (std::int64_t e = 0; e < n[4]; ++e) {
            swapped(c, b, a, n[3] - 1 - d, n[4] - 1 - e) = out(a, b, c, d, e);
          }
        }
      }
    }
  }
  return swapped;
}

/// [a, b, c, d, e] -> [b, a, c, d, e], such as weights [group, out, ...] -> input [batch, group, ...].
Array exchange_first_two(Array& in) {
  const auto& n = in.shape;
  Array out({n[1], n[0], n[2], n[3], n[4]});
  for (std::int64_t a = 0; a < n[0]; ++a) {
    for (std::int64_t b = 0; b < n[1]; ++b) {
      for (std::int64_t c = 0; c < n[2]; ++c) {
        for (std::int64_t d = 0; d < n[3]; ++d) {
          for (std::int64_t e = 0; e < n[4]; ++e) {
            out(b, a, c, d, e) = in(a, b, c, d, e);
          }
        }
      }
    }
  }
  return out;
}

/// Returns the operands of a product whose kernel in dimension `d` has become input channels.
Operands expanded(const Product& from, Operands& o, std::size_t d) {
  const FieldDimension& field = from.field[d];
  Product to = from;
  to.input_channels *= field.kernel;
  to.field[d] = {.input = field.output, .output = field.output};
  Operands made = zeros(to);
  const auto& n = made.input.shape;
  for (std::int64_t k = 0; k < field.kernel; ++k) {
    for (std::int64_t y = 0; y < field.output; ++y) {
      const std::int64_t source = met(field, y, k);
      for (std::int64_t b = 0; source >= 0 && b < n[0]; ++b) {
        for (std::int64_t g = 0; g < n[1]; ++g) {
          for (std::int64_t i = 0; i < from.input_channels; ++i) {
            for (std::int64_t other = 0; other < n[d == 0 ? 4 : 3]; ++other) {
              const std::int64_t channel = k * from.input_channels + i;
              if (d == 0) {
                made.input(b, g, channel, y, other) = o.input(b, g, i, source, other);
              } else {
                made.input(b, g, channel, other, y) = o.input(b, g, i, other, source);
              }
            }
          }
        }
      }
    }
    const auto& m = made.weights.shape;
    for (std::int64_t g = 0; g < m[0]; ++g) {
      for (std::int64_t c = 0; c < m[1]; ++c) {
        for (std::int64_t i = 0; i < from.input_channels; ++i) {
          for (std::int64_t other = 0; other < m[d == 0 ? 4 : 3]; ++other) {
            const std::int64_t channel = k * from.input_channels + i;
            if (d == 0) {
              made.weights(g, c, channel, 0, other) = o.weights(g, c, i, k, other);
            } else {
              made.weights(g, c, channel, other, 0) = o.weights(g, c, i, other, k);
            }
          }
        }
      }
    }
  }
  return made;
}

/// Returns the operands of a product after every `join` groups are joined, with their weights on the diagonal.
Operands combined(const Product& from, Operands& o, std::int64_t join) {
  Product to = from;
  to.groups /= join;
  to.input_channels *= join;
  to.output_channels *= join;
  Operands made = zeros(to);
  made.input.values = o.input.values;  // [group, channel] is [joined group, member, channel].
  const auto& n = o.weights.shape;
  for (std::int64_t g = 0; g < n[0]; ++g) {
    for (std::int64_t c = 0; c < n[1]; ++c) {
      for (std::int64_t i = 0; i < n[2]; ++i) {
        for (std::int64_t r = 0; r < n[3]; ++r) {
          for (std::int64_t s = 0; s < n[4]; ++s) {
            made.weights(g / join, g % join * n[1] + c, g % join * n[2] + i, r, s) = o.weights(g, c, i, r, s);
          }
        }
      }
    }
  }
  return made;
}

/// [a, b, c, d, e] -> [a and d and e, b, c, 1, 1].
Array flattened(Array& in) {
  const auto& n = in.shape;
  Array out({n[0] * n[3] * n[4], n[1], n[2], 1, 1});
  for (std::int64_t a = 0; a < n[0]; ++a) {
    for (std::int64_t b = 0; b < n[1]; ++b) {
      for (std::int64_t c = 0; c < n[2]; ++c) {
        for (std::int64_t d = 0; d < n[3]; ++d) {
          for (std::int64_t e = 0; e < n[4]; ++e) {
            out((a * n[3] + d) * n[4] + e, b, c, 0, 0) = in(a, b, c, d, e);
          }
        }
      }
    }
  }
  return out;
}

/// Applies a view step by step to random operands, and compares its sums with the product's.
void expect_equal_sums(const Product& product, const ViewedProduct& viewed, std::mt19937& random) {
  SCOPED_TRACE(to_text(product) + " as " + to_text(viewed.view));
  Operands operands = zeros(product);
  for (Array* array : {&operands.input, &operands.weights}) {
    for (std::int64_t& value : array->values) {
      value = static_cast<std::int64_t>(random() % 19) - 9;
    }
  }
  Array sums = compute(product, operands);
  Product now = product;
  const View& view = viewed.view;
  if (view.swapped) {
    // The input [batch, group, ...] takes the weights' place [group, out, ...], and vice versa.
    Array input = exchange_first_two(operands.weights);
    operands.weights = exchange_first_two(operands.input);
    operands.input = input;
    sums = swapped_output(sums);
    std::swap(now.batch, now.output_channels);
    for (FieldDimension& d : now.field) {
      d = {.input = d.kernel,
           .kernel = d.input,
           .output = d.output,
           .stride = d.stride,
           .input_dilation = d.kernel_dilation,
           .kernel_dilation = d.input_dilation,
           .padding = (d.output - 1) * d.stride - d.padding};
    }
  }
  for (std::size_t d = 0; d < 2; ++d) {
    if (view.expanded[d]) {
      operands = expanded(now, operands, d);
      now.input_channels *= now.field[d].kernel;
      now.field[d] = {.input = now.field[d].output, .output = now.field[d].output};
    }
  }
  if (view.flattened) {
    // [batch, group, channel, h, w] -> [batch and h and w, group, channel, 1, 1]
    operands.input = flattened(operands.input);
    sums = flattened(sums);
    now.batch *= now.field[0].output * now.field[1].output;
    now.field = {};
  }
  if (view.combined_groups > 1) {
    operands = combined(now, operands, view.combined_groups);
    now.groups /= view.combined_groups;
    now.input_channels *= view.combined_groups;
    now.output_channels *= view.combined_groups;
  }
  ASSERT_EQ(operands.input.shape, zeros(viewed.product).input.shape);
  ASSERT_EQ(operands.weights.shape, zeros(viewed.product).weights.shape);
  EXPECT_EQ(compute(viewed.product, operands).values, sums.values);
}

TEST(View, GivesTheSumsOfTheProduct) {
  std::mt19937 random(1);
  for (int k = 0; k < 80; ++k) {
    const Product product = testing::random_product(random, 4);
    for (const ViewedProduct& viewed : views_of(product, 16)) {
      expect_equal_sums(product, viewed, random);
    }
  }
}

std::vector<std::string> views_as_text(const Product& product) {
  std::vector<std::string> texts;
  for (const ViewedProduct& viewed : views_of(product, 8)) {
    texts.push_back(to_text(viewed.view));
  }
  return texts;
}

TEST(View, ExpandsAKernelIntoChannels) {
  const Product stem = testing::convolution(1, 3, 64, 224, 7, 2, 1, Arithmetic::kF32);

  EXPECT_THAT(views_as_text(stem), ElementsAre("as given", "expand columns", "expand kernel"));
  const ViewedProduct all = views_of(stem, 8)[2];
  EXPECT_EQ(all.product.input_channels, 3 * 7 * 7);
  EXPECT_EQ(all.copied_input, 112 * 112 * 3 * 7 * 7);
}

TEST(View, SwapsMatmulsAndGradientsOfWeights) {
  const Product stem = testing::convolution(1, 3, 64, 224, 7, 2, 1, Arithmetic::kF32);

  EXPECT_THAT(views_as_text(testing::matmul(1, 20, 2048, 1000, Arithmetic::kF32)), ElementsAre("as given", "swap"));
  EXPECT_THAT(views_as_text(weight_gradient(stem)), ElementsAre("as given", "expand columns", "expand kernel", "swap",
                                                                "swap, expand columns", "swap, expand kernel"));
}

TEST(View, FlattensThePositionsOfPointwiseConvolutions) {
  const Product pointwise = testing::convolution(20, 64, 256, 56, 1, 1, 1, Arithmetic::kF32);
  EXPECT_THAT(views_as_text(pointwise), ElementsAre("as given", "flatten"));
  EXPECT_THAT(views_as_text(input_gradient(pointwise)), ElementsAre("as given", "flatten"));
  EXPECT_EQ(views_of(pointwise, 8)[1].product.batch, 20 * 56 * 56);
  EXPECT_EQ(views_of(pointwise, 8)[1].copied_input, 0);

  const Product strided = testing::convolution(20, 64, 256, 56, 1, 2, 1, Arithmetic::kF32);
  EXPECT_THAT(views_as_text(strided), ElementsAre("as given"));
  const Product one_position = testing::convolution(20, 64, 256, 1, 1, 1, 1, Arithmetic::kF32);
  EXPECT_THAT(views_as_text(one_position), ElementsAre("as given"));
}

TEST(View, CombinesGroupsOfOneChannelUpToABlock) {
  const Product depthwise = testing::convolution(4, 32, 32, 14, 3, 1, 32, Arithmetic::kF16PartialsF16);
  std::vector<std::int64_t> joins;
  for (const ViewedProduct& viewed : views_of(depthwise, 16)) {
    if (!viewed.view.swapped && viewed.view.expanded == std::array{false, false}) {
      joins.push_back(viewed.view.combined_groups);
    }
  }
  EXPECT_THAT(joins, ElementsAre(1, 2, 4, 8, 16));
}

}  // namespace
}  // namespace poprun::planner::view_test
