#include "replica/models/onnx/indices.h"

#include <fmt/format.h>

namespace poprun::onnx_import {
namespace {

/// `sizes` has the size that each of a row of indices counts in.
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
      return node.wrong(
          fmt::format("index {} in element {} of '{}' is out of range; needed {} to "
                      "{}",
                      index, n, given.name, -size, size - 1));
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
        fmt::format("coordinates of {} numbers after {} shared dimensions for a "
                    "tensor of rank {}",
                    q, batch_dims, rank));
  }
  return check_known(node, {x.begin() + batch_dims, x.begin() + batch_dims + q});
}

}  // namespace poprun::onnx_import
