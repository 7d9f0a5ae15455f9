#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string>

#include "replica/ops/face/operator.h"

/// Reads a sequence, image or volume at places that are computed, between its pixels.
///
///   grid_sample(x [N,C,D1,..,Dd], grid [N,P..,d]) mode="nearest" | "linear" | "cubic"
///       padding="zeros" | "border" | "reflection" coordinates="pixels" | "corners" | "edges"
///       ->  y [N,C,P..], all f32 and row-major, 1 <= d <= 3
///
/// The last axis of the grid holds the coordinates of a place, in reverse order: the coordinate along the last
/// dimension of x comes first. "pixels" counts pixels from 0; for the others, -1 and 1 are the centres ("corners") or
/// the outer edges ("edges") of the first and last pixel. Pixels outside x are zero, or the pixel at the border, or
/// that on the other side of the border, which is an edge only if the coordinates are edges. As in PyTorch, "nearest"
/// rounds ties to even and passes no gradient to the grid, "cubic" uses Keys' kernel with a = -0.75, and "linear" moves
/// a place outside x to the border before it interpolates, where no gradient passes to its coordinate; "cubic" pads
/// each of the pixels that it reads.
///
///   grid_sample_gradient(x, grid, dy) of_grid=0|1 and grid_sample's attributes  ->  dx, and dgrid if of_grid=1
namespace poprun::ops::grid_sample {
namespace {

constexpr std::size_t kMostDims = 3;
constexpr std::size_t kMostTaps = 4;

enum class Mode : std::uint8_t { kNearest, kLinear, kCubic };
enum class Padding : std::uint8_t { kZeros, kBorder, kReflection };
enum class Coordinates : std::uint8_t { kPixels, kCorners, kEdges };

template <std::size_t n>
std::optional<std::size_t> position(const std::array<const char*, n>& names, const Attributes& attributes,
                                    const char* attribute) {
  const auto* const found =
      attributes.has(attribute) ? std::ranges::find(names, attributes.text(attribute)) : names.end();
  return found == names.end() ? std::nullopt : std::optional(static_cast<std::size_t>(found - names.begin()));
}

struct Way {
  Mode mode;
  Padding padding;
  Coordinates coordinates;

  static std::optional<Way> of(const Attributes& attributes) {
    const auto mode = position<3>({"nearest", "linear", "cubic"}, attributes, "mode");
    const auto padding = position<3>({"zeros", "border", "reflection"}, attributes, "padding");
    const auto coordinates = position<3>({"pixels", "corners", "edges"}, attributes, "coordinates");
    if (!mode || !padding || !coordinates) {
      return std::nullopt;
    }
    return Way{static_cast<Mode>(*mode), static_cast<Padding>(*padding), static_cast<Coordinates>(*coordinates)};
  }
};

/// A coordinate, and its derivative with respect to the one that it was computed from.
struct Moved {
  float at;
  float slope;
};

/// Reflects a coordinate at the borders, which are the centres or the edges of the first and last pixel.
Moved reflected(Moved p, std::int64_t size, bool edges) {
  const double low = edges ? -0.5 : 0.0;
  const double span = static_cast<double>(size) - (edges ? 0 : 1);
  if (span <= 0) {
    return {0, 0};
  }
  const double beyond = static_cast<double>(p.at) - low;
  const double distance = std::abs(beyond);
  const double turns = std::floor(distance / span);
  const double rest = distance - turns * span;
  const bool back = std::fmod(turns, 2) != 0;
  const bool negative = (beyond < 0) != back;
  return {static_cast<float>((back ? span - rest : rest) + low), negative ? -p.slope : p.slope};
}

/// Limits a coordinate to those of pixels. At the limit, the derivative is 0.
Moved limited(Moved p, std::int64_t size) {
  const auto last = static_cast<float>(size - 1);
  if (!(p.at > 0)) {
    return {0, 0};
  }
  return p.at >= last ? Moved{last, 0} : p;
}

/// The pixels that a place reads along one dimension, with their weights. `slope` is the derivative of a weight with
/// respect to the coordinate in the grid.
struct Taps {
  std::size_t count = 0;
  std::array<std::int64_t, kMostTaps> pixel{};
  std::array<float, kMostTaps> weight{};
  std::array<float, kMostTaps> slope{};

  void add(std::int64_t at, std::int64_t size, float w, float dw) {
    if (at >= 0 && at < size) {
      pixel[count] = at;
      weight[count] = w;
      slope[count] = dw;
      ++count;
    }
  }
};

/// Returns pixel `at` or, outside x, the one that the padding puts in its place; -1 for a zero.
std::int64_t padded(float at, std::int64_t size, const Way& way) {
  if (way.padding == Padding::kZeros) {
    return at >= 0 && at < static_cast<float>(size) ? static_cast<std::int64_t>(at) : -1;
  }
  Moved p{at, 1};
  if (way.padding == Padding::kReflection) {
    p = reflected(p, size, way.coordinates == Coordinates::kEdges);
  }
  return static_cast<std::int64_t>(limited(p, size).at);
}

/// Keys, "Cubic convolution interpolation for digital image processing", 1981, with a = -0.75.
float cubic(float x) {
  constexpr float kA = -0.75F;
  x = std::abs(x);
  return x <= 1 ? ((kA + 2) * x - (kA + 3)) * x * x + 1 : ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA;
}
float cubic_slope(float x) {
  constexpr float kA = -0.75F;
  const float size = std::abs(x);
  const float slope =
      size <= 1 ? (3 * (kA + 2) * size - 2 * (kA + 3)) * size : (3 * kA * size - 10 * kA) * size + 8 * kA;
  return x < 0 ? -slope : slope;
}

Taps taps_of(float given, std::int64_t size, const Way& way) {
  const auto n = static_cast<float>(size);
  Moved p{given, 1};
  if (way.coordinates == Coordinates::kCorners) {
    p = {(given + 1) / 2 * (n - 1), (n - 1) / 2};
  } else if (way.coordinates == Coordinates::kEdges) {
    p = {((given + 1) * n - 1) / 2, n / 2};
  }
  Taps taps;
  if (constexpr float kFar = 0x1p30F; !(std::abs(p.at) <= kFar)) {
    p = {std::isnan(p.at) ? -kFar : std::copysign(kFar, p.at), 0};
  }
  if (way.mode == Mode::kCubic) {
    const float first = std::floor(p.at) - 1;
    for (int k = 0; k < 4; ++k) {
      const float distance = p.at - (first + static_cast<float>(k));
      taps.add(padded(first + static_cast<float>(k), size, way), size, cubic(distance),
               cubic_slope(distance) * p.slope);
    }
    return taps;
  }
  if (way.padding == Padding::kReflection) {
    p = reflected(p, size, way.coordinates == Coordinates::kEdges);
  }
  if (way.padding != Padding::kZeros) {
    p = limited(p, size);
  }
  if (way.mode == Mode::kNearest) {
    taps.add(static_cast<std::int64_t>(std::nearbyint(p.at)), size, 1, 0);
    return taps;
  }
  const float low = std::floor(p.at);
  taps.add(static_cast<std::int64_t>(low), size, 1 - (p.at - low), -p.slope);
  taps.add(static_cast<std::int64_t>(low) + 1, size, p.at - low, p.slope);
  return taps;
}

/// One pixel that a place reads: its offset in a channel, its weight, and the weight's derivative with respect to each
/// coordinate of the place, that of the last dimension first.
struct Tap {
  std::int64_t offset;
  float weight;
  std::array<float, kMostDims> slope;
};

struct Sampling {
  std::int64_t N, C, P;  ///< P places per image.
  std::size_t d;
  Shape size;  ///< [d] sizes of x.
  std::int64_t pixels;
  Way way;

  Sampling(const TensorType& x, const TensorType& grid, const Attributes& attributes)
      : N(x.shape[0]),
        C(x.shape[1]),
        P(grid.elements() / grid.shape[0] / grid.shape.back()),
        d(x.shape.size() - 2),
        size(x.shape.begin() + 2, x.shape.end()),
        pixels(std::accumulate(size.begin(), size.end(), std::int64_t{1}, std::multiplies<>{})),
        way(Way::of(attributes).value()) {}

  /// Writes the pixels that the place with these coordinates reads, and returns their number.
  std::size_t taps(const float* place, std::array<Tap, kMostTaps * kMostTaps * kMostTaps>& all) const {
    all[0] = {0, 1, {1, 1, 1}};
    std::size_t count = 1;
    for (std::size_t k = 0; k < d; ++k) {
      const std::size_t coordinate = d - 1 - k;
      const Taps along = taps_of(place[coordinate], size[k], way);
      // Each pixel so far becomes one for each tap. They are made from the last, in place of those that are used up.
      for (std::size_t i = count; i-- > 0;) {
        const Tap before = all[i];
        for (std::size_t j = along.count; j-- > 0;) {
          Tap& tap = all[i * along.count + j];
          tap.offset = before.offset * size[k] + along.pixel[j];
          tap.weight = before.weight * along.weight[j];
          for (std::size_t c = 0; c < d; ++c) {
            tap.slope[c] = before.slope[c] * (c == coordinate ? along.slope[j] : along.weight[j]);
          }
        }
      }
      count *= along.count;
    }
    return count;
  }

  /// Calls visit(n, place, taps) for every place of every image.
  template <typename Visit>
  void for_each_place(const float* grid, Visit visit) const {
    std::array<Tap, kMostTaps * kMostTaps * kMostTaps> all;
    for (std::int64_t n = 0; n < N; ++n) {
      for (std::int64_t p = 0; p < P; ++p) {
        const std::size_t count = taps(grid + (n * P + p) * static_cast<std::int64_t>(d), all);
        visit(n, p, std::span<const Tap>(all.data(), count));
      }
    }
  }
};

bool fits(const Signature& s) {
  if (s.inputs.size() < 2 || !Way::of(s.attributes)) {
    return false;
  }
  const TensorType& x = s.inputs[0];
  const TensorType& grid = s.inputs[1];
  const auto plain = [](const TensorType& t) { return t.data == DataType::kF32 && t.layout == Layout::kRowMajor; };
  return plain(x) && plain(grid) && x.shape.size() >= 3 && x.shape.size() <= 2 + kMostDims && x.elements() > 0 &&
         grid.shape.size() >= 2 && grid.shape[0] == x.shape[0] &&
         grid.shape.back() == static_cast<std::int64_t>(x.shape.size()) - 2;
}

TensorType sampled(const Signature& s) {
  Shape y = {s.inputs[0].shape[0], s.inputs[0].shape[1]};
  y.insert(y.end(), s.inputs[1].shape.begin() + 1, s.inputs[1].shape.end() - 1);
  return {DataType::kF32, y, {}};
}

Result<std::vector<TensorType>> shape(const Signature& s) {
  if (s.inputs.size() != 2 || !fits(s)) {
    return shape_error("grid_sample", s,
                       "x f32[N,C,D1,..,Dd] and grid f32[N,..,d], row-major, 1 <= d <= 3, mode=\"nearest\", \"linear\" "
                       "or \"cubic\", padding=\"zeros\", \"border\" or \"reflection\", and coordinates=\"pixels\", "
                       "\"corners\" or \"edges\"");
  }
  return std::vector{sampled(s)};
}

std::unique_ptr<Kernel> numerics(const Signature& s) {
  return make_kernel([z = Sampling(s.inputs[0], s.inputs[1], s.attributes)](const Operands& t) {
    z.for_each_place(t.input_f32(1), [&](std::int64_t n, std::int64_t p, std::span<const Tap> taps) {
      const float* x = t.input_f32(0) + n * z.C * z.pixels;
      float* y = t.output_f32(0) + n * z.C * z.P + p;
      for (std::int64_t c = 0; c < z.C; ++c) {
        float sum = 0;
        for (const Tap& tap : taps) {
          sum += tap.weight * x[c * z.pixels + tap.offset];
        }
        y[c * z.P] = sum;
      }
    });
  });
}

Result<std::vector<TensorType>> gradient_shape(const Signature& s) {
  if (s.inputs.size() != 3 || !fits(s) || s.inputs[2] != sampled(s) || !s.attributes.has("of_grid")) {
    return shape_error("grid_sample_gradient", s, "grid_sample's x and grid, dy, of_grid=0|1 and its attributes");
  }
  std::vector<TensorType> types = {s.inputs[0]};
  if (s.attributes.integer("of_grid") != 0) {
    types.push_back(s.inputs[1]);
  }
  return types;
}

std::unique_ptr<Kernel> gradient_numerics(const Signature& s) {
  return make_kernel([z = Sampling(s.inputs[0], s.inputs[1], s.attributes), elements = s.inputs[0].elements(),
                      of_grid = s.outputs.size() == 2](const Operands& t) {
    std::fill_n(t.output_f32(0), elements, 0.0F);
    z.for_each_place(t.input_f32(1), [&](std::int64_t n, std::int64_t p, std::span<const Tap> taps) {
      const float* x = t.input_f32(0) + n * z.C * z.pixels;
      const float* dy = t.input_f32(2) + n * z.C * z.P + p;
      float* dx = t.output_f32(0) + n * z.C * z.pixels;
      std::array<float, kMostDims> sums{};
      for (std::int64_t c = 0; c < z.C; ++c) {
        for (const Tap& tap : taps) {
          dx[c * z.pixels + tap.offset] += tap.weight * dy[c * z.P];
          const float product = x[c * z.pixels + tap.offset] * dy[c * z.P];
          for (std::size_t k = 0; k < z.d && of_grid; ++k) {
            sums[k] += tap.slope[k] * product;
          }
        }
      }
      if (of_grid) {
        std::copy_n(sums.begin(), z.d, t.output_f32(1) + (n * z.P + p) * static_cast<std::int64_t>(z.d));
      }
    });
  });
}

/// Counts, for each element of y, a product for each of the pixels that it reads, which come from other tiles.
Work work_of(const Signature& s, const TensorType& y) {
  const std::string& mode = s.attributes.text("mode");
  std::int64_t taps = 1;
  for (std::size_t k = 2; k < s.inputs[0].shape.size(); ++k) {
    taps *= mode == "nearest" ? 1 : mode == "linear" ? 2 : 4;
  }
  Work work = elementwise_work(s, 0);
  work.vector_flops = 2 * taps * y.elements() + 16 * s.inputs[1].elements();
  work.exchanged = s.inputs[1].bytes() + y.bytes() * taps;
  return work;
}

Work work(const Signature& s) {
  return work_of(s, s.outputs[0]);
}

Work gradient_work(const Signature& s) {
  Work work = work_of(s, s.inputs[2]);
  work.vector_flops *= static_cast<std::int64_t>(s.outputs.size());
  work.compute_sets = 2;  // One fills with zeros, one adds.
  return work;
}

void gradient(Differentiator& d) {
  const Operation& op = d.operation();
  const std::vector<TensorId> inputs = op.inputs;
  Attributes attributes = op.attributes;
  const bool of_grid = d.wants(1) && attributes.text("mode") != "nearest";
  attributes.set("of_grid", std::int64_t{of_grid ? 1 : 0});
  std::vector<std::size_t> of_input = {0};
  if (of_grid) {
    of_input.push_back(1);
  }
  const auto gradients =
      d.add("grid_sample_gradient", {inputs[0], inputs[1], d.output_gradient(0)}, attributes, of_input);
  if (d.wants(0)) {
    d.set_input_gradient(0, gradients[0]);
  }
  if (of_grid) {
    d.set_input_gradient(1, gradients[1]);
  }
}

}  // namespace

std::vector<Operator> operators() {
  return {{"grid_sample", shape, gradient, work, numerics},
          {"grid_sample_gradient", gradient_shape, nullptr, gradient_work, gradient_numerics}};
}

}  // namespace poprun::ops::grid_sample
