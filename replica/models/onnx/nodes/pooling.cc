#include <algorithm>

#include "replica/models/onnx/node.h"
#include "replica/models/onnx/window.h"

/// Pooling of images [N,C,H,W] and of sequences [N,C,L], which are images of one row.
namespace poprun::onnx_import {
namespace {

Result<Attributes> attributes_of(Node& node) {
  if (node.shape(0).size() < 3) {
    return node.wrong("an image or a sequence needed");
  }
  const std::size_t dims = node.shape(0).size() - 2;
  POPRUN_ASSIGN(Shape kernel, node.sizes("kernel_shape", dims, 1, 0));
  kernel.insert(kernel.begin(), 2 - std::min<std::size_t>(dims, 2), 1);
  if (kernel[0] < 1) {
    return node.wrong("no kernel_shape");
  }
  POPRUN_ASSIGN(const Window window, window_of(node, kernel));
  Attributes attributes{{"window", kernel},
                        {"stride", window.stride},
                        {"pad", window.pad},
                        {"ceil", std::int64_t{node.integer("ceil_mode", 0) != 0 ? 1 : 0}}};
  if (window.dilation != Shape{1, 1}) {
    attributes.set("dilation", window.dilation);
  }
  return attributes;
}

Status max_pool(Node& node) {
  if (node.wants_output(1)) {
    return node.unsupported("the second output, indices");
  }
  POPRUN_ASSIGN(const TensorId x, image_of(node));
  POPRUN_ASSIGN(const Attributes attributes, attributes_of(node));
  POPRUN_ASSIGN(const TensorId y, node.add("maxpool2d", {x}, attributes));
  return set_image(node, y);
}

Status average_pool(Node& node) {
  POPRUN_ASSIGN(const TensorId x, image_of(node));
  POPRUN_ASSIGN(Attributes attributes, attributes_of(node));
  if (attributes.has("dilation")) {
    return node.unsupported("windows with dilation");
  }
  attributes.set("count_pad", std::int64_t{node.integer("count_include_pad", 0) != 0 ? 1 : 0});
  POPRUN_ASSIGN(const TensorId y, node.add("avgpool2d", {x}, attributes));
  return set_image(node, y);
}

/// One window over everything, of any number of dimensions: seen as one row.
Status global(Node& node, const std::string& kind) {
  const Shape shape = node.shape(0);
  if (shape.size() < 3) {
    return node.wrong("[N,C,...] needed");
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

std::vector<Translator> pooling_translators() {
  return {{"MaxPool", 1, max_pool},
          {"AveragePool", 1, average_pool},
          {"GlobalMaxPool", 1, [](Node& node) { return global(node, "maxpool2d"); }},
          {"GlobalAveragePool", 1, [](Node& node) { return global(node, "avgpool2d"); }}};
}

}  // namespace poprun::onnx_import
