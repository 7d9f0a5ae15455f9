#include <algorithm>

#include <fmt/format.h>

#include "replica/models/onnx/node.h"
#include "replica/models/onnx/window.h"

/// Pooling of images [N,C,H,W], of sequences [N,C,L] (treated as images of one row) and of volumes [N,C,D,H,W].
namespace poprun::onnx_import::nodes::pooling {
namespace {

/// Cuts off the trailing padding that no window reads, because the operators refuse padding as large as a window.
void cut_padding(const Shape& x, Window& w) {
  const std::size_t dims = w.kernel.size();
  for (std::size_t d = 0; d < dims; ++d) {
    const std::int64_t reach = (w.kernel[d] - 1) * w.dilation[d] + 1;
    const std::int64_t room = x[d + 2] + w.pad[d] + w.pad[d + dims] - reach;
    if (room >= 0) {
      w.pad[d + dims] -= std::min(w.pad[d + dims], room % w.stride[d]);
    }
  }
}

Result<Window> pooling_window(Node& node) {
  const Shape& x = node.shape(0);
  if (x.size() < 3 || x.size() > 5) {
    return node.unsupported(
        fmt::format("an input of rank {}; available: [N,C,L], [N,C,H,W] and [N,C,D,H,W]", x.size()));
  }
  if (!node.has_attribute("kernel_shape")) {
    return node.wrong("needs a kernel_shape");
  }
  POPRUN_ASSIGN(Shape kernel, node.sizes("kernel_shape", x.size() - 2, 1, 1));
  POPRUN_ASSIGN(Window window, window_of(node, std::move(kernel)));
  if (node.integer("ceil_mode", 0) == 0) {
    cut_padding(x, window);
  }
  return window;
}

Result<TensorId> pool_image(Node& node, const std::string& kind, TensorId x, const Window& w, bool count_pad = false) {
  Attributes attributes{{"window", w.kernel},
                        {"stride", w.stride},
                        {"pad", w.pad},
                        {"ceil", std::int64_t{node.integer("ceil_mode", 0) != 0 ? 1 : 0}}};
  if (w.dilation != Shape{1, 1}) {
    attributes.set("dilation", w.dilation);
  }
  if (kind == "avgpool2d") {
    count_pad = count_pad || node.integer("count_include_pad", 0) != 0;
    attributes.set("count_pad", std::int64_t{count_pad ? 1 : 0});
  }
  return node.add(kind, {x}, std::move(attributes));
}

/// Pools volumes [N,C,D,H,W]: first the planes, as images [N,CD,H,W], then the depths, as images [N,C,D,HW]. The
/// maximum (mean) over a box is the maximum (mean) of the maxima (means) over its planes.
Result<TensorId> pool_volume(Node& node, const std::string& kind, TensorId x, const Window& w, bool count_pad = false) {
  const Shape s = node.shape(0);
  POPRUN_ASSIGN(x, node.reshape(x, {s[0], s[1] * s[2], s[3], s[4]}, Layout::kChannelsLast));
  POPRUN_ASSIGN(x, pool_image(node, kind, x,
                              {.kernel = {w.kernel[1], w.kernel[2]},
                               .stride = {w.stride[1], w.stride[2]},
                               .dilation = {w.dilation[1], w.dilation[2]},
                               .pad = {w.pad[1], w.pad[2], w.pad[4], w.pad[5]}},
                              count_pad));
  const Shape plane = node.type(x).shape;
  POPRUN_ASSIGN(x, node.row_major_of(x));
  POPRUN_ASSIGN(x, node.reshape(x, {s[0], s[1], s[2], plane[2] * plane[3]}, Layout::kChannelsLast));
  POPRUN_ASSIGN(x, pool_image(node, kind, x,
                              {.kernel = {w.kernel[0], 1},
                               .stride = {w.stride[0], 1},
                               .dilation = {w.dilation[0], 1},
                               .pad = {w.pad[0], 0, w.pad[3], 0}},
                              count_pad));
  const std::int64_t depth = node.type(x).shape[2];
  return node.reshape(x, {s[0], s[1], depth, plane[2], plane[3]});
}

Status pool(Node& node, const std::string& kind) {
  POPRUN_ASSIGN(Window window, pooling_window(node));
  if (node.shape(0).size() == 5) {
    POPRUN_ASSIGN(const TensorId x, node.row_major(0));
    return node.set_result(pool_volume(node, kind, x, window));
  }
  POPRUN_ASSIGN(const TensorId x, image_of(node));
  POPRUN_ASSIGN(const TensorId y, pool_image(node, kind, x, on_image(std::move(window))));
  return set_image(node, y);
}

/// Returns x^p, with a product for 2 and nothing for 1.
Result<TensorId> power(Node& node, TensorId x, double p) {
  if (p == 1) {
    return x;
  }
  if (p == 2) {
    return node.add("mul", {x, x});
  }
  if (p == 0.5) {
    return node.add("sqrt", {x});
  }
  POPRUN_ASSIGN(const TensorId exponent, node.fill({}, p));
  return node.add("pow", {x, exponent});
}

/// Computes (sum |x|^p)^(1/p) over each window: the mean over the padded image, times the number of elements.
Status lp_pool(Node& node) {
  const std::int64_t p = node.integer("p", 2);
  POPRUN_ASSIGN(Window window, pooling_window(node));
  if (p < 1 || node.integer("ceil_mode", 0) != 0 ||
      std::ranges::any_of(window.dilation, [](auto d) { return d != 1; })) {
    return node.unsupported("p < 1, ceil_mode = 1 or dilations");
  }
  const bool volume = node.shape(0).size() == 5;
  POPRUN_ASSIGN(TensorId x, volume ? node.row_major(0) : image_of(node));
  POPRUN_ASSIGN(x, node.add("abs", {x}));
  POPRUN_ASSIGN(x, power(node, x, static_cast<double>(p)));
  double elements = 1;
  for (const std::int64_t size : window.kernel) {
    elements *= static_cast<double>(size);
  }
  POPRUN_ASSIGN(TensorId y, volume ? pool_volume(node, "avgpool2d", x, window, /*count_pad=*/true)
                                   : pool_image(node, "avgpool2d", x, on_image(std::move(window)), true));
  POPRUN_ASSIGN(const TensorId count, node.fill({}, elements));
  POPRUN_ASSIGN(y, node.add("mul", {y, count}));
  POPRUN_ASSIGN(y, power(node, y, 1 / static_cast<double>(p)));
  if (volume) {
    node.set(0, y);
    return {};
  }
  return set_image(node, y);
}

Status max_pool(Node& node) {
  if (node.wants_output(1)) {
    return node.unsupported("the second output (indices)");
  }
  return pool(node, "maxpool2d");
}

Status average_pool(Node& node) {
  return pool(node, "avgpool2d");
}

/// Pools with one window over all pixels. There can be any number of dimensions, which are treated as one row.
Status global(Node& node, const std::string& kind) {
  const Shape shape = node.shape(0);
  if (shape.size() < 3) {
    return node.wrong("needs an input [N,C,...]");
  }
  TensorId x{};
  if (shape.size() == 4) {
    POPRUN_ASSIGN(x, node.image(0));
  } else {
    POPRUN_ASSIGN(x, node.row_major(0));
    const std::int64_t pixels = node.type(x).elements() / shape[0] / shape[1];
    POPRUN_ASSIGN(x, node.reshape(x, {shape[0], shape[1], 1, pixels}, Layout::kChannelsLast));
  }
  const Shape& image = node.type(x).shape;
  Attributes attributes{{"window", Shape{image[2], image[3]}},
                        {"stride", Shape{1, 1}},
                        {"pad", Shape{0, 0, 0, 0}},
                        {"ceil", std::int64_t{0}}};
  if (kind == "avgpool2d") {
    attributes.set("count_pad", std::int64_t{0});
  }
  POPRUN_ASSIGN(TensorId y, node.add(kind, {x}, std::move(attributes)));
  if (shape.size() != 4) {
    Shape ones(shape.size(), 1);
    ones[0] = shape[0];
    ones[1] = shape[1];
    POPRUN_ASSIGN(y, node.reshape(y, ones));
  }
  node.set(0, y);
  return {};
}

}  // namespace

std::vector<Translator> translators() {
  return {{"MaxPool", 1, max_pool},
          {"AveragePool", 1, average_pool},
          {"LpPool", 1, lp_pool},
          {"GlobalMaxPool", 1, [](Node& node) { return global(node, "maxpool2d"); }},
          {"GlobalAveragePool", 1, [](Node& node) { return global(node, "avgpool2d"); }}};
}

}  // namespace poprun::onnx_import::nodes::pooling
