#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "replica/models/onnx/node.h"

/// Resize and Upsample. They resize one axis after the other, since all modes are separable.
namespace poprun::onnx_import::nodes::resize {
namespace {

/// New size of one axis.
struct Target {
  std::int64_t size;
  std::optional<double> scale = {};  ///< Present if the size was given as a scale.
};

/// Returns the axes to resize. Since opset 18, they may be listed.
Result<std::vector<std::size_t>> axes_of(Node& node) {
  std::vector<std::size_t> axes;
  for (const std::int64_t axis : node.integers("axes")) {
    POPRUN_ASSIGN(const std::size_t d, normal_axis(axis, node.shape(0).size()));
    axes.push_back(d);
  }
  for (std::size_t d = 0; axes.size() < node.shape(0).size() && !node.has_attribute("axes"); ++d) {
    axes.push_back(d);
  }
  return axes;
}

Result<std::vector<Target>> by_scales(Node& node, const std::vector<float>& given) {
  const Shape x = node.shape(0);
  POPRUN_ASSIGN(const std::vector<std::size_t> axes, axes_of(node));
  if (given.size() != axes.size()) {
    return node.wrong("needs a scale for each dimension");
  }
  std::vector<float> scales(x.size(), 1);
  for (std::size_t k = 0; k < axes.size(); ++k) {
    scales[axes[k]] = given[k];
  }
  std::vector<Target> targets;
  for (std::size_t d = 0; d < x.size(); ++d) {
    // ONNX multiplies in float32, in which 10 x 0.7 is 7. In double, the product would be less than 7.
    const float size = std::floor(static_cast<float>(x[d]) * scales[d]);
    if (!(size >= 1) || size > static_cast<float>(kMostElements)) {
      return node.wrong(fmt::format("scale {} produces a size that is out of range", scales[d]));
    }
    targets.push_back({static_cast<std::int64_t>(size), static_cast<double>(scales[d])});
  }
  return targets;
}

Result<std::vector<float>> scales_of(Node& node, std::size_t i) {
  POPRUN_ASSIGN(const auto scales, node.constant(i));
  if (!scales->real() || scales->elements() > 16) {
    return node.wrong("needs a list of scales");
  }
  std::vector<float> values;
  for (std::int64_t k = 0; k < scales->elements(); ++k) {
    values.push_back(scales->real_at(k));
  }
  return values;
}

Result<std::vector<Target>> by_sizes(Node& node, std::size_t i) {
  POPRUN_ASSIGN(const auto given, node.integers_of(i));
  POPRUN_ASSIGN(const std::vector<std::size_t> axes, axes_of(node));
  if (given.size() != axes.size()) {
    return node.wrong("needs a size for each dimension");
  }
  Shape sizes = node.shape(0);
  for (std::size_t k = 0; k < axes.size(); ++k) {
    sizes[axes[k]] = given[k];
  }
  std::vector<Target> targets;
  for (const std::int64_t size : sizes) {
    if (size < 1 || size > kMostElements) {
      return node.wrong(fmt::format("size {} is out of range", size));
    }
    targets.push_back({size});
  }
  return targets;
}

Status resize_axes(Node& node, const std::vector<Target>& targets, const Attributes& attributes) {
  POPRUN_ASSIGN(TensorId x, node.tensor(0));
  for (std::size_t d = 0; d < targets.size(); ++d) {
    const std::int64_t had = node.type(x).shape[d];
    const bool same = targets[d].scale ? *targets[d].scale == 1.0 : targets[d].size == had;
    if (same) {
      continue;
    }
    Attributes own = attributes;
    own.set("axis", static_cast<std::int64_t>(d));
    own.set("size", targets[d].size);
    if (targets[d].scale) {
      own.set("scale", *targets[d].scale);
    }
    POPRUN_ASSIGN(x, node.add("resize", {x}, std::move(own)));
  }
  node.set(0, x);
  return {};
}

/// In opset 10, resizes like Upsample. From opset 11 on, accepts named coordinates and either scales or sizes.
Status resize(Node& node) {
  const std::string mode = node.text("mode", "nearest");
  if (node.opset() < 11) {
    POPRUN_ASSIGN(const auto scales, scales_of(node, 1));
    POPRUN_ASSIGN(const auto targets, by_scales(node, scales));
    return resize_axes(
        node, targets,
        {{"mode", mode}, {"coordinates", std::string{"asymmetric"}}, {"rounding", std::string{"floor"}}});
  }
  const std::string coordinates = node.text("coordinate_transformation_mode", "half_pixel");
  if (coordinates == "tf_crop_and_resize" || coordinates == "half_pixel_symmetric") {
    return node.unsupported(
        fmt::format("coordinate_transformation_mode = {}; available: half_pixel, pytorch_half_pixel, "
                    "tf_half_pixel_for_nn, asymmetric, align_corners",
                    coordinates));
  }
  if (node.integer("antialias", 0) != 0) {
    return node.unsupported("antialias = 1; available: 0");
  }
  if (const std::string policy = node.text("keep_aspect_ratio_policy", "stretch"); policy != "stretch") {
    return node.unsupported(fmt::format("keep_aspect_ratio_policy = {}; available: stretch", policy));
  }
  const Attributes attributes{{"mode", mode},
                              {"coordinates", coordinates},
                              {"rounding", node.text("nearest_mode", "round_prefer_floor")},
                              {"cubic_a", node.real("cubic_coeff_a", -0.75)},
                              {"exclude_outside", std::int64_t{node.integer("exclude_outside", 0) != 0 ? 1 : 0}}};
  if (node.has(3)) {
    POPRUN_ASSIGN(const auto targets, by_sizes(node, 3));
    return resize_axes(node, targets, attributes);
  }
  if (!node.has(2)) {
    return node.wrong("needs scales or sizes");
  }
  POPRUN_ASSIGN(const auto scales, scales_of(node, 2));
  POPRUN_ASSIGN(const auto targets, by_scales(node, scales));
  return resize_axes(node, targets, attributes);
}

/// Resizes by scales, which are an attribute before opset 9 and an input since then.
Status upsample(Node& node) {
  std::vector<float> scales = node.reals("scales");
  if (node.has(1)) {
    POPRUN_ASSIGN(scales, scales_of(node, 1));
  }
  POPRUN_ASSIGN(const auto targets, by_scales(node, scales));
  return resize_axes(node, targets,
                     {{"mode", node.text("mode", "nearest")},
                      {"coordinates", std::string{"asymmetric"}},
                      {"rounding", std::string{"floor"}}});
}

}  // namespace

std::vector<Translator> translators() {
  return {{"Resize", 1, resize}, {"Upsample", 1, upsample}};
}

}  // namespace poprun::onnx_import::nodes::resize
