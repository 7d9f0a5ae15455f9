#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/unit/replica/ops/case.h"

/// grid_sample: reading images between their pixels.
namespace poprun::testing {
namespace {

constexpr std::int64_t kBeyond = 9;  ///< Pixels outside the image, on each side, that the definition adds up.

/// Returns the pixel that the padding puts at i, or -1 for a zero.
std::int64_t pixel_at(std::int64_t i, std::int64_t n, const Attributes& a) {
  if (i >= 0 && i < n) {
    return i;
  }
  if (a.text("padding") == "border") {
    return i < 0 ? 0 : n - 1;
  }
  if (a.text("padding") == "zeros") {
    return -1;
  }
  const std::int64_t edge = a.text("coordinates") == "edges" ? 1 : 0;
  while (i < 0 || i >= n) {
    i = i < 0 ? -i - edge : 2 * (n - 1) - i + edge;
  }
  return i;
}

/// Returns the weight of a pixel at distance t.
double weight(double t, const std::string& mode) {
  const double s = std::abs(t);
  if (mode == "linear") {
    return s < 1 ? 1 - s : 0;
  }
  if (mode == "nearest") {
    return s < 0.5 ? 1 : 0;
  }
  return s <= 1 ? 1.25 * s * s * s - 2.25 * s * s + 1 : s < 2 ? -0.75 * (s * s * s - 5 * s * s + 8 * s - 4) : 0;
}

double place(double g, std::int64_t size, const std::string& coordinates) {
  const auto n = static_cast<double>(size);
  return coordinates == "pixels" ? g : coordinates == "corners" ? (g + 1) / 2 * (n - 1) : ((g + 1) * n - 1) / 2;
}

/// A pixel that a place reads along one dimension, and its weight.
struct Read {
  std::int64_t pixel;
  double weight;
};

/// Returns all pixels in and around an image that have a weight at place p.
std::vector<Read> reads_at(double p, std::int64_t size, const Attributes& a) {
  std::vector<Read> reads;
  for (std::int64_t at = -kBeyond; at < size + kBeyond; ++at) {
    const double w = weight(p - static_cast<double>(at), a.text("mode"));
    if (const std::int64_t pixel = pixel_at(at, size, a); pixel >= 0 && w != 0) {
      reads.push_back({pixel, w});
    }
  }
  return reads;
}

/// Adds up all pixels in and around the image, each with its weight. The grid has the coordinates of P places per
/// image.
Arrays grid_sampled(const Arrays& in, const Attributes& a) {
  const Shape& x = in[0].shape;
  const std::int64_t d = in[1].shape.back();
  Array y({x[0], x[1], in[1].shape[1]});
  for_each_index(y.shape, [&](const Shape& i) {
    std::vector<std::vector<Read>> reads;
    Shape counts;
    for (std::int64_t k = 0; k < d; ++k) {
      const std::int64_t size = x[static_cast<std::size_t>(k + 2)];
      reads.push_back(reads_at(place(in[1]({i[0], i[2], d - 1 - k}), size, a.text("coordinates")), size, a));
      counts.push_back(std::ssize(reads.back()));
    }
    for_each_index(counts, [&](const Shape& chosen) {
      double w = 1;
      Shape from = {i[0], i[1]};
      for (std::size_t k = 0; k < reads.size(); ++k) {
        const Read& read = reads[k][static_cast<std::size_t>(chosen[k])];
        w *= read.weight;
        from.push_back(read.pixel);
      }
      y(i) += w * in[0](from);
    });
  });
  return {y};
}

void add_grid(std::vector<Case>& all, const Input& x, const Input& grid, const char* mode, const char* padding,
              const char* coordinates) {
  Attributes a{
      {"mode", std::string{mode}}, {"padding", std::string{padding}}, {"coordinates", std::string{coordinates}}};
  const Error error{0x1p-17, 64};
  all.push_back({"grid_sample", {x, grid}, a, grid_sampled, error});
  const Input dy = half({x.type.shape[0], x.type.shape[1], grid.type.shape[1]});
  for (const bool of_grid : {false, true}) {
    a.set("of_grid", std::int64_t{of_grid});
    all.push_back({"grid_sample_gradient",
                   {x, grid, dy},
                   a,
                   [of_grid](const Arrays& in, const Attributes& with) {
                     const Arrays operands = {in[0], in[1]};
                     Arrays gradients = {slope(grid_sampled, operands, with, 0, in[2])};
                     if (of_grid) {
                       gradients.push_back(slope(grid_sampled, operands, with, 1, in[2]));
                     }
                     return gradients;
                   },
                   {0x1p-16, 64}});
  }
}

}  // namespace

std::vector<Case> sampling_cases() {
  std::vector<Case> all;
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (const char* coordinates : {"corners", "edges"}) {
        add_grid(all, half({2, 3, 4, 5}), half({2, 7, 2}, -1.6, 1.6), mode, padding, coordinates);
      }
    }
  }
  add_grid(all, half({1, 2, 4, 5}), half({1, 9, 2}, -2, 6), "linear", "zeros", "pixels");
  add_grid(all, half({1, 2, 6}), half({1, 9, 1}, -1.5, 1.5), "linear", "border", "edges");
  add_grid(all, half({1, 2, 3, 2, 4}), half({1, 9, 3}, -1.5, 1.5), "linear", "zeros", "edges");
  return all;
}

}  // namespace poprun::testing
