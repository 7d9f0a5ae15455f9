#include <algorithm>

#include <fmt/format.h>

#include "replica/models/onnx/node.h"
#include "replica/models/onnx/window.h"

/// Conv and ConvTranspose of images [N,C,H,W] and of sequences [N,C,L], which are images of one
/// row.
namespace poprun::onnx_import {
namespace {

/// A weight [a,b,K] as [a,b,1,K].
Result<TensorId> kernel_of(Node& node, TensorId w) {
  const Shape& shape = node.type(w).shape;
  if (shape.size() == 4) {
    return w;
  }
  return node.reshape(w, {shape[0], shape[1], 1, shape[2]});
}

Status check_kernel(Node& node) {
  const Shape& w = node.shape(1);
  if (w.size() != node.shape(0).size() || std::ranges::min(w) < 1) {
    return node.wrong(
        fmt::format("a weight of rank {} for an input of rank {}", w.size(), node.shape(0).size()));
  }
  const auto stated = node.integers("kernel_shape");
  if (!stated.empty() && !std::equal(stated.begin(), stated.end(), w.begin() + 2, w.end())) {
    return node.wrong("a kernel_shape that is not the weight's");
  }
  return {};
}

Status conv(Node& node) {
  POPRUN_ASSIGN(const TensorId x, image_of(node));
  POPRUN_TRY(check_kernel(node));
  POPRUN_ASSIGN(TensorId w, node.weight(1));
  POPRUN_ASSIGN(w, kernel_of(node, w));
  const Shape& kernel = node.type(w).shape;
  POPRUN_ASSIGN(const Window window, window_of(node, {kernel[2], kernel[3]}));
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

/// w [C,O/G,R,S] turned into the kernel [O,C/G,R,S] of the convolution that does the same: flipped,
/// input and output channels exchanged in each group.
Result<TensorId> flipped(Node& node, TensorId w, std::int64_t groups) {
  for (const std::int64_t axis : {2, 3}) {
    const std::int64_t size = node.type(w).shape[static_cast<std::size_t>(axis)];
    POPRUN_ASSIGN(
        w, node.add(
               "slice", {w},
               {{"axis", axis}, {"begin", size - 1}, {"count", size}, {"step", std::int64_t{-1}}}));
  }
  const Shape s = node.type(w).shape;
  POPRUN_ASSIGN(w, node.reshape(w, {groups, s[0] / groups, s[1], s[2], s[3]}));
  POPRUN_ASSIGN(w, node.transpose(w, {0, 2, 1, 3, 4}));
  return node.reshape(w, {s[1] * groups, s[0] / groups, s[2], s[3]});
}

/// x [N,C,H,W] with stride - 1 zeros between its rows and columns.
Result<TensorId> spread(Node& node, TensorId x, const Shape& stride) {
  const Shape s = node.type(x).shape;
  if (stride == Shape{1, 1}) {
    return x;
  }
  POPRUN_ASSIGN(x, node.reshape(x, {s[0], s[1], s[2], 1, s[3], 1}));
  POPRUN_ASSIGN(x, node.add("pad", {x},
                            {{"begin", Shape(6, 0)},
                             {"end", Shape{0, 0, 0, stride[0] - 1, 0, stride[1] - 1}},
                             {"mode", std::string{"constant"}},
                             {"value", 0.0}}));
  const Shape wide = {s[0], s[1], s[2] * stride[0], s[3] * stride[1]};
  POPRUN_ASSIGN(x, node.reshape(x, wide));
  return node.add("pad", {x},
                  {{"begin", Shape(4, 0)},
                   {"end", Shape{0, 0, 1 - stride[0], 1 - stride[1]}},
                   {"mode", std::string{"constant"}},
                   {"value", 0.0}});
}

/// Pads of the transposed convolution: given, or from the output's size.
Result<Window> transposed_window(Node& node, const Shape& x, const Shape& kernel,
                                 const Shape& output_padding) {
  POPRUN_ASSIGN(Window window, window_of(node, {kernel[2], kernel[3]}));
  const bool lower = node.text("auto_pad", "NOTSET") == "SAME_LOWER";
  const bool same = lower || node.text("auto_pad", "NOTSET") == "SAME_UPPER";
  auto wanted = node.integers("output_shape");
  if (wanted.size() + 2 == node.shape(0).size() && wanted.size() == 1) {
    wanted.insert(wanted.begin(), 1);
  }
  for (std::size_t d = 0; d < 2; ++d) {
    const std::int64_t reach = (kernel[d + 2] - 1) * window.dilation[d] + 1;
    const std::int64_t full = (x[d + 2] - 1) * window.stride[d] + reach + output_padding[d];
    std::int64_t size = full - window.pad[d] - window.pad[d + 2];
    if (wanted.size() >= 2) {
      size = wanted[wanted.size() - 2 + d];
    } else if (same) {
      size = x[d + 2] * window.stride[d];
    } else {
      continue;
    }
    const std::int64_t total = full - size;
    const std::int64_t half = total >> 1;  // Rounded down, also where rows are to be added.
    // Here the odd one goes behind with SAME_UPPER, else before (ONNX's ConvTranspose).
    window.pad[d] = same && !lower ? half : total - half;
    window.pad[d + 2] = total - window.pad[d];
  }
  return window;
}

/// Every element of x adds its multiple of the kernel to the output: the convolution of x, spread
/// apart by the stride, with the flipped kernel.
Status conv_transpose(Node& node) {
  POPRUN_ASSIGN(TensorId x, image_of(node));
  POPRUN_TRY(check_kernel(node));
  POPRUN_ASSIGN(TensorId w, node.weight(1));
  POPRUN_ASSIGN(w, kernel_of(node, w));
  const Shape kernel = node.type(w).shape;
  const std::int64_t groups = node.integer("group", 1);
  if (groups < 1 || kernel[0] % groups != 0) {
    return node.wrong("groups that divide the channels needed");
  }
  const std::size_t dims = node.shape(0).size() - 2;
  POPRUN_ASSIGN(Shape output_padding, node.sizes("output_padding", dims, 0, 0));
  output_padding.insert(output_padding.begin(), 2 - dims, 0);
  POPRUN_ASSIGN(const Window window,
                transposed_window(node, node.type(x).shape, kernel, output_padding));
  POPRUN_ASSIGN(w, flipped(node, w, groups));
  POPRUN_ASSIGN(x, spread(node, x, window.stride));
  Shape begin(4, 0);
  Shape end(4, 0);
  for (std::size_t d = 0; d < 2; ++d) {
    const std::int64_t reach = (kernel[d + 2] - 1) * window.dilation[d];
    begin[d + 2] = reach - window.pad[d];
    end[d + 2] = reach - window.pad[d + 2] + output_padding[d];
  }
  POPRUN_ASSIGN(
      x, node.add(
             "pad", {x},
             {{"begin", begin}, {"end", end}, {"mode", std::string{"constant"}}, {"value", 0.0}}));
  POPRUN_ASSIGN(x, node.reshape(x, node.type(x).shape, Layout::kChannelsLast));
  std::vector<TensorId> inputs = {x, w};
  if (node.has(2)) {
    POPRUN_ASSIGN(const TensorId b, node.weight(2));
    inputs.push_back(b);
  }
  POPRUN_ASSIGN(const TensorId y, node.add("conv2d", inputs,
                                           {{"stride", Shape{1, 1}},
                                            {"pad", Shape{0, 0, 0, 0}},
                                            {"dilation", window.dilation},
                                            {"groups", groups}}));
  return set_image(node, y);
}

}  // namespace

std::vector<Translator> convolution_translators() {
  return {{"Conv", 2, conv}, {"ConvTranspose", 2, conv_transpose}};
}

}  // namespace poprun::onnx_import
