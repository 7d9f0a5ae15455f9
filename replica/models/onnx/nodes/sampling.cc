#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "replica/models/layers/shapes.h"
#include "replica/models/onnx/node.h"
#include "replica/models/onnx/window.h"

/// Operators that read images between their pixels: GridSample, AffineGrid, DeformConv and RoiAlign.
namespace poprun::onnx_import::nodes::sampling {
namespace {

Attributes sampled(const std::string& mode, const std::string& padding, const std::string& coordinates) {
  return {{"mode", mode}, {"padding", padding}, {"coordinates", coordinates}};
}

/// Adds a + b, or their product, as a tensor of coordinates, which stays in float32 in half precision.
Result<TensorId> coordinates(Node& node, const std::string& kind, TensorId a, TensorId b) {
  POPRUN_ASSIGN(const TensorId y, node.add(kind, {a, b}));
  node.builder().keep_f32(y);
  return y;
}

Status grid_sample(Node& node) {
  const Shape x_shape = node.shape(0);
  const Shape grid_shape = node.shape(1);
  if (x_shape.size() < 3 || x_shape.size() > 5) {
    return node.unsupported(fmt::format(
        "an input of rank {}; available: sequences [N,C,L], images [N,C,H,W] and volumes [N,C,D,H,W]", x_shape.size()));
  }
  if (grid_shape.size() != x_shape.size() || grid_shape[0] != x_shape[0] ||
      grid_shape.back() != static_cast<std::int64_t>(x_shape.size()) - 2) {
    return node.wrong("needs a grid [N,...,d] with one coordinate for each dimension of the input after the channels");
  }
  std::string mode = node.text("mode", node.opset() < 20 ? "bilinear" : "linear");
  mode = mode == "bilinear" ? "linear" : mode == "bicubic" ? "cubic" : mode;  // The names before opset 20.
  const std::string padding = node.text("padding_mode", "zeros");
  if (mode != "linear" && mode != "nearest" && mode != "cubic") {
    return node.wrong(fmt::format("mode = {}; available: linear, nearest, cubic", mode));
  }
  if (padding != "zeros" && padding != "border" && padding != "reflection") {
    return node.wrong(fmt::format("padding_mode = {}; available: zeros, border, reflection", padding));
  }
  POPRUN_ASSIGN(const TensorId x, node.row_major(0));
  POPRUN_ASSIGN(const TensorId grid, node.row_major(1));
  return node.set_result(node.add("grid_sample", {x, grid},
                                  sampled(mode, padding, node.integer("align_corners", 0) != 0 ? "corners" : "edges")),
                         node.element(0));
}

/// Computes the grid [N,H,W,2] or [N,D,H,W,3] of an affine map theta [N,d,d+1]: theta times the place (x, y, .., 1).
Status affine_grid(Node& node) {
  POPRUN_ASSIGN(const auto size, node.integers_of(1));
  const Shape theta_shape = node.shape(0);
  const auto d = static_cast<std::int64_t>(size.size()) - 2;
  if (d < 2 || d > 3 || theta_shape != Shape{size[0], d, d + 1} || std::ranges::min(size) < 1) {
    return node.wrong("needs theta [N,2,3] and a size [N,C,H,W], or theta [N,3,4] and a size [N,C,D,H,W]");
  }
  const bool corners = node.integer("align_corners", 0) != 0;
  const Shape pixels(size.begin() + 2, size.end());
  std::int64_t places = 1;
  for (const std::int64_t n : pixels) {
    POPRUN_ASSIGN(places, checked_elements({places, n}));
  }
  POPRUN_TRY(checked_elements({places, d + 1}));
  std::vector<float> base(static_cast<std::size_t>(places * (d + 1)), 1);  // [d + 1, places]
  std::int64_t below = 1;                                                  // Places per step along the dimension.
  for (std::int64_t k = 0; k < d; ++k) {
    const std::int64_t n = pixels[static_cast<std::size_t>(d - 1 - k)];
    for (std::int64_t p = 0; p < places; ++p) {
      const auto i = static_cast<double>(p / below % n);
      const double at =
          corners ? (n == 1 ? 0 : 2 * i / static_cast<double>(n - 1) - 1) : (2 * i + 1) / static_cast<double>(n) - 1;
      base[static_cast<std::size_t>(k * places + p)] = static_cast<float>(at);
    }
    below *= n;
  }
  POPRUN_ASSIGN(TensorId theta, node.row_major(0));
  POPRUN_ASSIGN(theta, node.reshape(theta, {size[0] * d, d + 1}));
  POPRUN_ASSIGN(const TensorId table,
                node.device_constant(Constant::of_reals(std::move(base), {d + 1, places}), "places"));
  POPRUN_ASSIGN(TensorId y, node.matmul(theta, table));
  POPRUN_ASSIGN(y, node.reshape(y, {size[0], d, places}));
  POPRUN_ASSIGN(y, node.transpose(y, {0, 2, 1}));
  Shape shape = {size[0]};
  shape.insert(shape.end(), pixels.begin(), pixels.end());
  shape.push_back(d);
  return node.set_result(node.reshape(y, shape), node.element(0));
}

/// Returns the places [1,K,P,2] that the K elements of a kernel read for P output pixels, without offsets.
Result<TensorId> regular_places(Node& node, const Window& w, const Shape& out) {
  std::vector<float> places;
  for (std::int64_t k = 0; k < w.kernel[0] * w.kernel[1]; ++k) {
    for (std::int64_t p = 0; p < out[0] * out[1]; ++p) {
      const std::int64_t column = p % out[1] * w.stride[1] - w.pad[1] + k % w.kernel[1] * w.dilation[1];
      const std::int64_t row = p / out[1] * w.stride[0] - w.pad[0] + k / w.kernel[1] * w.dilation[0];
      places.push_back(static_cast<float>(column));
      places.push_back(static_cast<float>(row));
    }
  }
  return node.device_constant(Constant::of_reals(std::move(places), {1, w.kernel[0] * w.kernel[1], out[0] * out[1], 2}),
                              "places");
}

/// Convolves x [N,C,H,W], where each element of the kernel reads a place that is moved by an offset: reads all places,
/// multiplies them by the mask, and applies the kernel as a 1x1 convolution of C K channels.
Status deform_conv(Node& node) {
  const Shape s = node.shape(0);
  const Shape w_shape = node.shape(1);
  const std::int64_t groups = node.integer("group", 1);
  const std::int64_t parts = node.integer("offset_group", 1);
  if (s.size() != 4 || w_shape.size() != 4) {
    return node.unsupported("an input of another rank than 4; available: images [N,C,H,W]");
  }
  if (groups < 1 || parts < 1 || s[1] % parts != 0 || w_shape[1] * groups != s[1]) {
    return node.wrong("needs numbers of groups that divide the number of channels");
  }
  POPRUN_ASSIGN(const Window w, window_of(node, {w_shape.begin() + 2, w_shape.end()}));
  Shape out;
  for (std::size_t d = 0; d < 2; ++d) {
    out.push_back((s[d + 2] + w.pad[d] + w.pad[d + 2] - (w.kernel[d] - 1) * w.dilation[d] - 1) / w.stride[d] + 1);
  }
  const std::int64_t K = w.kernel[0] * w.kernel[1];
  const std::int64_t P = out[0] * out[1];
  const std::int64_t N = s[0] * parts;
  if (std::ranges::min(out) < 1 || node.shape(2) != Shape{s[0], parts * K * 2, out[0], out[1]} ||
      (node.has(4) && node.shape(4) != Shape{s[0], parts * K, out[0], out[1]})) {
    return node.wrong("needs two offsets, and one element of the mask, for each kernel element and output pixel");
  }
  POPRUN_ASSIGN(TensorId x, node.row_major(0));
  POPRUN_ASSIGN(x, node.reshape(x, {N, s[1] / parts, s[2], s[3]}));
  POPRUN_ASSIGN(TensorId grid, node.row_major(2));
  POPRUN_ASSIGN(grid, node.reshape(grid, {N, K, 2, P}));
  POPRUN_ASSIGN(grid, node.slice(grid, 2, 1, 2, -1));  // The row's offset comes first, but the column's coordinate.
  POPRUN_ASSIGN(grid, node.transpose(grid, {0, 1, 3, 2}));
  POPRUN_ASSIGN(const TensorId places, regular_places(node, w, out));
  POPRUN_ASSIGN(grid, coordinates(node, "add", grid, places));
  POPRUN_ASSIGN(TensorId y, node.add("grid_sample", {x, grid}, sampled("linear", "zeros", "pixels")));
  if (node.has(4)) {
    POPRUN_ASSIGN(TensorId mask, node.row_major(4));
    POPRUN_ASSIGN(mask, node.reshape(mask, {N, 1, K, P}));
    POPRUN_ASSIGN(y, node.add("mul", {y, mask}));
  }
  POPRUN_ASSIGN(y, node.reshape(y, {s[0], s[1] * K, out[0], out[1]}, Layout::kChannelsLast));
  POPRUN_ASSIGN(TensorId weight, node.weight(1));
  POPRUN_ASSIGN(weight, node.reshape(weight, {w_shape[0], w_shape[1] * K, 1, 1}));
  std::vector<TensorId> inputs = {y, weight};
  if (node.has(3)) {
    POPRUN_ASSIGN(const TensorId bias, node.weight(3));
    inputs.push_back(bias);
  }
  return node.set_result(
      node.add("conv2d", inputs,
               {{"stride", Shape{1, 1}}, {"pad", Shape{0, 0, 0, 0}}, {"dilation", Shape{1, 1}}, {"groups", groups}}));
}

/// Pools regions of images. Each of the cells of a region is the mean of `samples` x `samples` places in it.
class RoiAlign {
 public:
  RoiAlign(Node& node, std::int64_t samples)
      : node_(node),
        samples_(samples),
        centred_(node.text("coordinate_transformation_mode", node.opset() < 16 ? "output_half_pixel" : "half_pixel") ==
                 "half_pixel") {}

  /// Returns the coordinates [R,n] along one dimension, given the columns of the regions [R,4] that hold its bounds.
  Result<TensorId> places(TensorId regions, std::int64_t column, std::int64_t cells) {
    POPRUN_ASSIGN(const TensorId scale, node_.fill({}, node_.real("spatial_scale", 1)));
    POPRUN_ASSIGN(TensorId begin, node_.slice(regions, 1, column, 1));
    POPRUN_ASSIGN(TensorId end, node_.slice(regions, 1, column + 2, 1));
    POPRUN_ASSIGN(begin, coordinates(node_, "mul", begin, scale));
    POPRUN_ASSIGN(end, coordinates(node_, "mul", end, scale));
    POPRUN_ASSIGN(TensorId size, coordinates(node_, "sub", end, begin));
    if (centred_) {
      POPRUN_ASSIGN(const TensorId half, node_.fill({}, 0.5));
      POPRUN_ASSIGN(begin, coordinates(node_, "sub", begin, half));
    } else {
      POPRUN_ASSIGN(const TensorId one, node_.fill({}, 1));
      POPRUN_ASSIGN(size, coordinates(node_, "max", size, one));
    }
    const std::int64_t n = cells * samples_;
    std::vector<float> shares;
    for (std::int64_t i = 0; i < n; ++i) {
      shares.push_back(static_cast<float>((static_cast<double>(i) + 0.5) / static_cast<double>(n)));
    }
    POPRUN_ASSIGN(const TensorId share, node_.device_constant(Constant::of_reals(std::move(shares), {1, n}),
                                                              fmt::format("places{}", column)));
    POPRUN_ASSIGN(size, coordinates(node_, "mul", size, share));
    return coordinates(node_, "add", begin, size);
  }

  /// Returns 1 where a coordinate is at most one pixel outside an image of `pixels`, else 0.
  Result<TensorId> inside(TensorId at, std::int64_t pixels) {
    POPRUN_ASSIGN(const TensorId low, node_.fill({}, -1));
    POPRUN_ASSIGN(const TensorId high, node_.fill({}, static_cast<double>(pixels)));
    POPRUN_ASSIGN(const TensorId above, node_.add("greater_equal", {at, low}));
    POPRUN_ASSIGN(const TensorId below, node_.add("greater_equal", {high, at}));
    return node_.add("mul", {above, below});
  }

 private:
  Node& node_;
  std::int64_t samples_;
  bool centred_;
};

Status roi_align(Node& node) {
  const Shape s = node.shape(0);
  const std::int64_t samples = node.integer("sampling_ratio", 0);
  const std::int64_t rows = node.integer("output_height", 1);
  const std::int64_t columns = node.integer("output_width", 1);
  if (samples < 1) {
    return node.unsupported(
        "sampling_ratio = 0, with which the number of samples depends on the data; export the "
        "model with a fixed number, such as sampling_ratio=2");
  }
  if (const std::string mode = node.text("mode", "avg"); mode != "avg") {
    return node.unsupported(fmt::format("mode = {}; available: avg", mode));
  }
  if (s.size() != 4 || node.shape(1).size() != 2 || node.shape(1)[1] != 4 || rows < 1 || columns < 1 ||
      node.shape(2) != Shape{node.shape(1)[0]}) {
    return node.wrong("needs images [N,C,H,W], regions [R,4], and for each region the index of its image");
  }
  const std::int64_t R = node.shape(1)[0];
  RoiAlign align(node, samples);
  POPRUN_ASSIGN(const TensorId regions, node.row_major(1));
  POPRUN_ASSIGN(TensorId x, align.places(regions, 0, columns));
  POPRUN_ASSIGN(TensorId y, align.places(regions, 1, rows));
  POPRUN_ASSIGN(TensorId inside, align.inside(y, s[2]));
  POPRUN_ASSIGN(TensorId inside_columns, align.inside(x, s[3]));
  POPRUN_ASSIGN(TensorId image, node.row_major(2));
  POPRUN_ASSIGN(image, node.to_reals(image));

  // The image is the first of three coordinates: the regions are read from a volume [1,C,N,H,W].
  const std::int64_t Y = rows * samples;
  const std::int64_t X = columns * samples;
  POPRUN_ASSIGN(x, node.reshape(x, {R, 1, X}));
  POPRUN_ASSIGN(y, node.reshape(y, {R, Y, 1}));
  POPRUN_ASSIGN(image, node.reshape(image, {R, 1, 1}));
  std::vector<TensorId> places;
  for (const TensorId part : {x, y, image}) {
    POPRUN_ASSIGN(TensorId all, node.expand(part, {R, Y, X}));
    node.builder().keep_f32(all);
    POPRUN_ASSIGN(all, node.reshape(all, {1, R * Y * X, 1}));
    node.builder().keep_f32(all);
    places.push_back(all);
  }
  POPRUN_ASSIGN(const TensorId grid, node.add("concat", places, {{"axis", std::int64_t{2}}}));
  node.builder().keep_f32(grid);
  POPRUN_ASSIGN(TensorId volume, node.row_major(0));
  POPRUN_ASSIGN(volume, node.transpose(volume, {1, 0, 2, 3}));
  POPRUN_ASSIGN(volume, node.reshape(volume, {1, s[1], s[0], s[2], s[3]}));
  POPRUN_ASSIGN(TensorId read, node.add("grid_sample", {volume, grid}, sampled("linear", "border", "pixels")));
  POPRUN_ASSIGN(read, node.reshape(read, {s[1], R, Y, X}));
  POPRUN_ASSIGN(inside, node.reshape(inside, {1, R, Y, 1}));
  POPRUN_ASSIGN(inside_columns, node.reshape(inside_columns, {1, R, 1, X}));
  POPRUN_ASSIGN(read, node.add("mul", {read, inside}));
  POPRUN_ASSIGN(read, node.add("mul", {read, inside_columns}));
  POPRUN_ASSIGN(read, node.reshape(read, {s[1] * R, rows, samples, columns, samples}));
  read = layers::reduce(node.builder(), node.free_name(), layers::Reduction::kMean, read, {2, 4}, false);
  POPRUN_TRY(node.builder().status());
  POPRUN_ASSIGN(read, node.reshape(read, {s[1], R, rows, columns}));
  return node.set_result(node.transpose(read, {1, 0, 2, 3}), node.element(0));
}

}  // namespace

std::vector<Translator> translators() {
  return {{"GridSample", 2, grid_sample},
          {"AffineGrid", 2, affine_grid},
          {"DeformConv", 3, deform_conv},
          {"RoiAlign", 3, roi_align}};
}

}  // namespace poprun::onnx_import::nodes::sampling
