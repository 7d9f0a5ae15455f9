#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "replica/models/onnx/node.h"
#include "replica/models/onnx/window.h"

/// Conv and ConvTranspose of images [N,C,H,W], of sequences [N,C,L], which are treated as images of one row, and of
/// volumes [N,C,D,H,W].
namespace poprun::onnx_import::nodes::convolution {
namespace {

/// Reshapes a weight [a,b,K] to [a,b,1,K].
Result<TensorId> kernel_of(Node& node, TensorId w) {
  const Shape& shape = node.type(w).shape;
  if (shape.size() == 4) {
    return w;
  }
  return node.reshape(w, {shape[0], shape[1], 1, shape[2]});
}

/// Returns the window of the weight (input 1) as it moves over an image. Requires: check_kernel succeeded.
Result<Window> weight_window(Node& node) {
  const Shape w = node.shape(1);
  POPRUN_ASSIGN(Window window, window_of(node, {w.begin() + 2, w.end()}));
  return on_image(std::move(window));
}

Status check_kernel(Node& node) {
  const Shape& w = node.shape(1);
  if (w.size() < 3 || w.size() != node.shape(0).size() || std::ranges::min(w) < 1) {
    return node.wrong(fmt::format("the weight has rank {}, but the input has rank {}", w.size(), node.shape(0).size()));
  }
  const auto stated = node.integers("kernel_shape");
  if (!stated.empty() && !std::equal(stated.begin(), stated.end(), w.begin() + 2, w.end())) {
    return node.wrong("the attribute kernel_shape differs from the weight's kernel");
  }
  return {};
}

/// Convolves volumes [N,C,D,H,W] as a sum over the depths k of the kernel: the planes of x that kernel plane k meets
/// are images [N D',C,H,W].
Status conv_volume(Node& node) {
  const Shape w_shape = node.shape(1);
  POPRUN_ASSIGN(const Window window, window_of(node, {w_shape.begin() + 2, w_shape.end()}));
  POPRUN_ASSIGN(TensorId x, node.row_major(0));
  POPRUN_ASSIGN(TensorId w, node.weight(1));
  POPRUN_ASSIGN(w, node.row_major_of(w));
  if (window.pad[0] > 0 || window.pad[3] > 0) {
    POPRUN_ASSIGN(x, node.add("pad", {x},
                              {{"begin", Shape{0, 0, window.pad[0], 0, 0}},
                               {"end", Shape{0, 0, window.pad[3], 0, 0}},
                               {"mode", std::string{"constant"}},
                               {"value", 0.0}}));
  }
  const Shape s = node.type(x).shape;
  const std::int64_t reach = (w_shape[2] - 1) * window.dilation[0] + 1;
  if (s[2] < reach) {
    return node.wrong("the kernel is deeper than the padded input");
  }
  const std::int64_t depth = (s[2] - reach) / window.stride[0] + 1;
  std::optional<TensorId> sum;
  for (std::int64_t k = 0; k < w_shape[2]; ++k) {
    POPRUN_ASSIGN(TensorId planes, node.slice(x, 2, k * window.dilation[0], depth, window.stride[0]));
    POPRUN_ASSIGN(planes, node.transpose(planes, {0, 2, 1, 3, 4}));
    POPRUN_ASSIGN(planes, node.reshape(planes, {s[0] * depth, s[1], s[3], s[4]}, Layout::kChannelsLast));
    POPRUN_ASSIGN(TensorId plane, node.slice(w, 2, k, 1));
    POPRUN_ASSIGN(plane, node.reshape(plane, {w_shape[0], w_shape[1], w_shape[3], w_shape[4]}));
    POPRUN_ASSIGN(const TensorId y,
                  node.add("conv2d", {planes, plane},
                           {{"stride", Shape{window.stride[1], window.stride[2]}},
                            {"pad", Shape{window.pad[1], window.pad[2], window.pad[4], window.pad[5]}},
                            {"dilation", Shape{window.dilation[1], window.dilation[2]}},
                            {"groups", node.integer("group", 1)}}));
    if (sum) {
      POPRUN_ASSIGN(sum, node.add("add", {*sum, y}));
    } else {
      sum = y;
    }
  }
  if (node.has(2)) {
    POPRUN_ASSIGN(const TensorId b, node.weight(2));
    POPRUN_ASSIGN(const TensorId column, node.reshape(b, {w_shape[0], 1, 1}));
    POPRUN_ASSIGN(sum, node.add("add", {*sum, column}));
  }
  POPRUN_ASSIGN(TensorId y, node.row_major_of(*sum));
  const Shape plane = node.type(y).shape;
  POPRUN_ASSIGN(y, node.reshape(y, {s[0], depth, plane[1], plane[2], plane[3]}));
  return node.set_result(node.transpose(y, {0, 2, 1, 3, 4}));
}

Status conv(Node& node) {
  if (node.shape(0).size() == 5) {
    POPRUN_TRY(check_kernel(node));
    return conv_volume(node);
  }
  POPRUN_ASSIGN(const TensorId x, image_of(node));
  POPRUN_TRY(check_kernel(node));
  POPRUN_ASSIGN(TensorId w, node.weight(1));
  POPRUN_ASSIGN(w, kernel_of(node, w));
  POPRUN_ASSIGN(const Window window, weight_window(node));
  std::vector<TensorId> inputs = {x, w};
  if (node.has(2)) {
    POPRUN_ASSIGN(const TensorId b, node.weight(2));
    inputs.push_back(b);
  }
  POPRUN_ASSIGN(TensorId y, node.add("conv2d", inputs,
                                     {{"stride", window.stride},
                                      {"pad", window.pad},
                                      {"dilation", window.dilation},
                                      {"groups", node.integer("group", 1)}}));
  return set_image(node, y);
}

/// The size of the output, and the padding that is cut off. A requested size determines the padding. If that size
/// exceeds the full output, zeros are appended.
struct Transposed {
  Window window;
  Shape size;  ///< [H,W] or [D,H,W].
};

/// `x` and `kernel` are the shapes of the image or volume and of its kernel.
Result<Transposed> transposed_window(Node& node, const Shape& x, const Shape& kernel) {
  const std::size_t given = node.shape(0).size() - 2;
  const std::size_t dims = x.size() - 2;
  Transposed t;
  POPRUN_ASSIGN(t.window, weight_window(node));
  POPRUN_ASSIGN(Shape extra, node.sizes("output_padding", given, 0, 0));
  POPRUN_ASSIGN(Shape wanted, node.sizes("output_shape", given, 1, 0));
  extra.insert(extra.begin(), dims - given, 0);
  wanted.insert(wanted.begin(), dims - given, 0);
  const std::string automatic = node.text("auto_pad", "NOTSET");
  for (std::size_t d = 0; d < dims; ++d) {
    std::int64_t& before = t.window.pad[d];
    std::int64_t& behind = t.window.pad[d + dims];
    const std::int64_t reach = (kernel[d + 2] - 1) * t.window.dilation[d] + 1;
    const std::int64_t full = (x[d + 2] - 1) * t.window.stride[d] + reach + extra[d];
    if (wanted[d] == 0 && automatic.starts_with("SAME")) {
      wanted[d] = x[d + 2] * t.window.stride[d];
    }
    if (wanted[d] != 0) {
      const std::int64_t total = full - wanted[d];
      const std::int64_t half = total >> 1;  // This rounds down, even below zero.
      before = automatic == "SAME_UPPER" ? half : total - half;
      behind = total - before;
    }
    t.size.push_back(full - before - behind);
    behind = std::max<std::int64_t>(behind, 0);
  }
  return t;
}

/// Adds the bias (input 2), if the node has one, to y [N,O,...].
Result<TensorId> with_bias(Node& node, TensorId y, std::int64_t outputs) {
  if (!node.has(2)) {
    return y;
  }
  Shape column(node.type(y).shape.size() - 1, 1);
  column[0] = outputs;
  POPRUN_ASSIGN(TensorId b, node.weight(2));
  POPRUN_ASSIGN(b, node.reshape(b, column));
  return node.add("add", {y, b});
}

/// Convolves volumes: plane k of the kernel turns the planes of x into images [N D,O,Y,X], which are spread `stride`
/// apart from depth k * dilation on and added up.
Status conv_transpose_volume(Node& node, std::int64_t groups) {
  const Shape s = node.shape(0);
  const Shape kernel = node.shape(1);
  POPRUN_ASSIGN(const Transposed t, transposed_window(node, s, kernel));
  const Window& w = t.window;
  const std::int64_t outputs = kernel[1] * groups;
  const std::int64_t reach = (kernel[2] - 1) * w.dilation[0] + 1;
  const std::int64_t full = std::max((s[2] - 1) * w.stride[0] + reach, w.pad[0] + t.size[0]);
  POPRUN_ASSIGN(TensorId x, node.row_major(0));
  POPRUN_ASSIGN(x, node.transpose(x, {0, 2, 1, 3, 4}));
  POPRUN_ASSIGN(x, node.reshape(x, {s[0] * s[2], s[1], s[3], s[4]}, Layout::kChannelsLast));
  POPRUN_ASSIGN(TensorId weight, node.weight(1));
  POPRUN_ASSIGN(weight, node.row_major_of(weight));
  std::optional<TensorId> sum;
  for (std::int64_t k = 0; k < kernel[2]; ++k) {
    POPRUN_ASSIGN(TensorId plane, node.slice(weight, 2, k, 1));
    POPRUN_ASSIGN(plane, node.reshape(plane, {kernel[0], kernel[1], kernel[3], kernel[4]}));
    POPRUN_ASSIGN(TensorId y, node.add("conv2d_input_gradient", {x, plane},
                                       {{"stride", Shape{w.stride[1], w.stride[2]}},
                                        {"pad", Shape{w.pad[1], w.pad[2], w.pad[4], w.pad[5]}},
                                        {"dilation", Shape{w.dilation[1], w.dilation[2]}},
                                        {"groups", groups},
                                        {"input_shape", Shape{s[0] * s[2], outputs, t.size[1], t.size[2]}}}));
    POPRUN_ASSIGN(y, node.reshape(y, {s[0], s[2], outputs * t.size[1] * t.size[2]}));
    POPRUN_ASSIGN(y, node.add("slice_gradient", {y},
                              {{"axis", std::int64_t{1}},
                               {"begin", k * w.dilation[0]},
                               {"count", s[2]},
                               {"step", w.stride[0]},
                               {"size", full}}));
    if (sum) {
      POPRUN_ASSIGN(y, node.add("add", {*sum, y}));
    }
    sum = y;
  }
  POPRUN_ASSIGN(TensorId y, node.slice(*sum, 1, w.pad[0], t.size[0]));
  POPRUN_ASSIGN(y, node.reshape(y, {s[0], t.size[0], outputs, t.size[1], t.size[2]}));
  POPRUN_ASSIGN(y, node.transpose(y, {0, 2, 1, 3, 4}));
  return node.set_result(with_bias(node, y, outputs));
}

/// Adds each element of x times the kernel to the output, like the gradient with respect to a convolution's input.
Status conv_transpose(Node& node) {
  const std::int64_t groups = node.integer("group", 1);
  POPRUN_TRY(check_kernel(node));
  if (groups < 1 || groups > node.shape(1)[0]) {
    return node.wrong("needs a number of groups that divides the number of input channels");
  }
  if (node.shape(0).size() == 5) {
    return conv_transpose_volume(node, groups);
  }
  POPRUN_ASSIGN(const TensorId x, image_of(node));
  POPRUN_ASSIGN(TensorId w, node.weight(1));
  POPRUN_ASSIGN(w, kernel_of(node, w));
  const Shape kernel = node.type(w).shape;
  POPRUN_ASSIGN(const Transposed t, transposed_window(node, node.type(x).shape, kernel));
  const Shape shape = {node.type(x).shape[0], kernel[1] * groups, t.size[0], t.size[1]};
  POPRUN_ASSIGN(TensorId y, node.add("conv2d_input_gradient", {x, w},
                                     {{"stride", t.window.stride},
                                      {"pad", t.window.pad},
                                      {"dilation", t.window.dilation},
                                      {"groups", groups},
                                      {"input_shape", shape}}));
  POPRUN_ASSIGN(y, with_bias(node, y, shape[1]));
  return set_image(node, y);
}

}  // namespace

std::vector<Translator> translators() {
  return {{"Conv", 2, conv}, {"ConvTranspose", 2, conv_transpose}};
}

}  // namespace poprun::onnx_import::nodes::convolution
