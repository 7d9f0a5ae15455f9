#include "replica/models/onnx/window.h"

#include <algorithm>

#include <fmt/format.h>

namespace poprun::onnx_import {
namespace {

/// Checks known indices. The index at position n selects from a dimension of sizes[n % sizes.size()] elements.
Status check_known(const Node& node, const Shape& sizes) {
  const Value& given = node.value(1);
  if (given.constant == nullptr || given.sample || given.constant->real()) {
    return {};
  }
  const Constant& indices = *given.constant;
  for (std::int64_t n = 0; n < indices.elements(); ++n) {
    const std::int64_t index = indices.integer_at(n);
    const std::int64_t size = sizes[static_cast<std::size_t>(n) % sizes.size()];
    if (index < -size || index >= size) {
      return node.wrong(fmt::format("index {} in element {} of '{}' is outside the range {} to {}", index, n,
                                    given.name, -size, size - 1));
    }
  }
  return {};
}

}  // namespace

Result<std::size_t> indexed_axis(const Node& node) {
  const Shape x = node.shape(0);
  POPRUN_ASSIGN(const std::size_t axis, normal_axis(node.integer("axis", 0), x.size()));
  POPRUN_TRY(check_known(node, {x[axis]}));
  return axis;
}

Status check_coordinates(const Node& node, std::int64_t batch_dims) {
  const Shape x = node.shape(0);
  const Shape indices = node.shape(1);
  const auto rank = static_cast<std::int64_t>(x.size());
  const std::int64_t q = indices.empty() ? 0 : indices.back();
  if (batch_dims < 0 || q < 1 || batch_dims + q > rank) {
    return node.wrong(
        fmt::format("{} coordinates after {} shared dimensions do not fit a tensor of rank {}", q, batch_dims, rank));
  }
  return check_known(node, {x.begin() + batch_dims, x.begin() + batch_dims + q});
}

Result<TensorId> image_of(Node& node) {
  const Shape s = node.shape(0);
  if (s.size() != 3 && s.size() != 4) {
    return node.unsupported(fmt::format(
        "an input of rank {}; available: sequences [N,C,L], images [N,C,H,W] and volumes [N,C,D,H,W]", s.size()));
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

Result<Window> window_of(Node& node, Shape kernel) {
  const std::size_t dims = kernel.size();
  POPRUN_CHECK(node.shape(0).size() == dims + 2);
  Window w;
  w.kernel = std::move(kernel);
  POPRUN_ASSIGN(w.stride, node.sizes("strides", dims, 1, 1));
  POPRUN_ASSIGN(w.dilation, node.sizes("dilations", dims, 1, 1));
  POPRUN_ASSIGN(w.pad, node.sizes("pads", 2 * dims, 0, 0));
  const std::string automatic = node.text("auto_pad", "NOTSET");
  if (automatic == "VALID") {
    w.pad.assign(2 * dims, 0);
  } else if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    for (std::size_t d = 0; d < dims; ++d) {
      const std::int64_t size = node.shape(0)[d + 2];
      const std::int64_t reach = (w.kernel[d] - 1) * w.dilation[d] + 1;
      const std::int64_t windows = (size + w.stride[d] - 1) / w.stride[d];
      const std::int64_t total = std::max<std::int64_t>((windows - 1) * w.stride[d] + reach - size, 0);
      w.pad[d] = automatic == "SAME_LOWER" ? total - total / 2 : total / 2;
      w.pad[d + dims] = total - w.pad[d];
    }
  } else if (automatic != "NOTSET") {
    return node.wrong(fmt::format("auto_pad = {}; available: NOTSET, VALID, SAME_UPPER, SAME_LOWER", automatic));
  }
  return w;
}

Window on_image(Window window) {
  if (window.kernel.size() == 1) {
    for (Shape* one : {&window.kernel, &window.stride, &window.dilation}) {
      one->insert(one->begin(), 1);
    }
    window.pad = {0, window.pad[0], 0, window.pad[1]};
  }
  return window;
}

}  // namespace poprun::onnx_import
