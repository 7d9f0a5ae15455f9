#include "replica/models/onnx/window.h"

#include <algorithm>

#include <fmt/format.h>

namespace poprun::onnx_import {

Result<TensorId> image_of(Node& node) {
  const Shape s = node.shape(0);
  if (s.size() != 3 && s.size() != 4) {
    return node.unsupported(
        fmt::format("an input of rank {}; there are sequences [N,C,L] and "
                    "images [N,C,H,W]",
                    s.size()));
  }
  if (s.size() == 3) {
    POPRUN_ASSIGN(const TensorId x, node.row_major(0));
    return node.reshape(x, {s[0], s[1], 1, s[2]}, Layout::kChannelsLast);
  }
  return node.image(0);
}

Status set_image(Node& node, TensorId image) {
  const Shape s = node.type(image).shape;
  if (node.shape(0).size() == 3) {
    POPRUN_ASSIGN(image, node.reshape(image, {s[0], s[1], s[3]}));
  }
  node.set(0, image);
  return {};
}

Result<Window> window_of(Node& node, const Shape& kernel) {
  const std::size_t dims = node.shape(0).size() - 2;
  Window w;
  POPRUN_ASSIGN(w.stride, node.sizes("strides", dims, 1, 1));
  POPRUN_ASSIGN(w.dilation, node.sizes("dilations", dims, 1, 1));
  POPRUN_ASSIGN(w.pad, node.sizes("pads", 2 * dims, 0, 0));
  if (dims == 1) {
    w.stride.insert(w.stride.begin(), 1);
    w.dilation.insert(w.dilation.begin(), 1);
    w.pad = {0, w.pad[0], 0, w.pad[1]};
  }
  const std::string automatic = node.text("auto_pad", "NOTSET");
  if (automatic == "VALID") {
    w.pad.assign(4, 0);
  } else if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    const Shape& x = node.shape(0);
    for (std::size_t d = 2 - dims; d < 2; ++d) {
      const std::int64_t size = x[d + dims];
      const std::int64_t reach = (kernel[d] - 1) * w.dilation[d] + 1;
      const std::int64_t windows = (size + w.stride[d] - 1) / w.stride[d];
      const std::int64_t total =
          std::max<std::int64_t>((windows - 1) * w.stride[d] + reach - size, 0);
      w.pad[d] = automatic == "SAME_LOWER" ? total - total / 2 : total / 2;
      w.pad[d + 2] = total - w.pad[d];
    }
  } else if (automatic != "NOTSET") {
    return node.wrong(
        fmt::format("auto_pad = {}; there are NOTSET, VALID, SAME_UPPER, SAME_LOWER", automatic));
  }
  return w;
}

}  // namespace poprun::onnx_import
