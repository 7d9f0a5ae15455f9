#include "replica/ops/broadcast/broadcast.h"

#include "replica/base/error.h"
#include "replica/ops/face/shaped.h"

namespace poprun {
namespace {

/// Returns the memory stride, in elements, of each logical dimension.
Shape element_strides(const TensorType& type) {
  const Shape& d = type.shape;
  if (type.layout == Layout::kChannelsLast) {
    return {d[1] * d[2] * d[3], 1, d[3] * d[1], d[1]};
  }
  return strides_of(d);
}

/// Returns the stride of `operand` along each dimension of `whole`, or 0 for a dimension along which it is repeated.
Shape strides_within(const TensorType& operand, const TensorType& whole) {
  POPRUN_CHECK(operand.shape.size() <= whole.shape.size());
  const std::size_t missing = whole.shape.size() - operand.shape.size();
  const Shape own = element_strides(operand);
  Shape strides(whole.shape.size(), 0);
  for (std::size_t d = 0; d < own.size(); ++d) {
    strides[missing + d] = operand.shape[d] == 1 ? 0 : own[d];
  }
  return strides;
}

}  // namespace

std::optional<Shape> broadcast_shape(const Shape& a, const Shape& b) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape shape = longer;
  const std::size_t missing = longer.size() - shorter.size();
  for (std::size_t d = 0; d < shorter.size(); ++d) {
    std::int64_t& size = shape[missing + d];
    if (size != shorter[d] && size != 1 && shorter[d] != 1) {
      return std::nullopt;
    }
    size = size == 1 ? shorter[d] : size;
  }
  return shape;
}

std::optional<TensorType> broadcast_type(const std::vector<TensorType>& operands) {
  TensorType type{operands[0].data, {}, Layout::kRowMajor};
  for (const TensorType& operand : operands) {
    const auto shape = broadcast_shape(type.shape, operand.shape);
    if (!shape) {
      return std::nullopt;
    }
    type.shape = *shape;
    type.layout = operand.layout == Layout::kChannelsLast ? operand.layout : type.layout;
  }
  const bool fits = type.layout == Layout::kRowMajor || type.shape.size() == 4;
  return fits ? std::optional(type) : std::nullopt;
}

void set_broadcast_gradient(Differentiator& d, std::size_t input, TensorId gradient) {
  const TensorType& wanted = d.type(d.operation().inputs[input]);
  if (d.type(gradient) != wanted) {
    gradient = d.add("sum_to", {gradient}, shaped(wanted.shape, wanted.layout), {input})[0];
  }
  d.set_input_gradient(input, gradient);
}

void BroadcastLoops::step(Shape& index, Shape& offsets) const {
  for (std::size_t d = index.size(); d-- > 0;) {
    const bool wraps = ++index[d] == sizes[d];
    for (std::size_t k = 0; k < offsets.size(); ++k) {
      offsets[k] += wraps ? -strides[k][d] * (sizes[d] - 1) : strides[k][d];
    }
    if (!wraps) {
      return;
    }
    index[d] = 0;
  }
}

BroadcastLoops broadcast_loops(const TensorType& whole, const std::vector<TensorType>& operands) {
  std::vector<Shape> all = {element_strides(whole)};
  for (const TensorType& operand : operands) {
    all.push_back(strides_within(operand, whole));
  }
  std::vector<std::size_t> order = {0, 2, 3, 1};
  if (whole.layout == Layout::kRowMajor) {
    order.resize(whole.shape.size());
    for (std::size_t d = 0; d < order.size(); ++d) {
      order[d] = d;
    }
  }
  BroadcastLoops loops{{}, std::vector<Shape>(operands.size())};
  std::vector<std::int64_t> outer(all.size(), 0);  // Strides of the most recently added loop.
  for (const std::size_t d : order) {
    const std::int64_t size = whole.shape[d];
    if (size == 1) {
      continue;
    }
    bool merges = !loops.sizes.empty();
    for (std::size_t k = 0; k < all.size(); ++k) {
      merges = merges && outer[k] == all[k][d] * size;
      outer[k] = all[k][d];
    }
    if (merges) {
      loops.sizes.back() *= size;
    } else {
      loops.sizes.push_back(size);
    }
    for (std::size_t k = 0; k < operands.size(); ++k) {
      if (!merges) {
        loops.strides[k].push_back(0);
      }
      loops.strides[k].back() = all[k + 1][d];
    }
  }
  if (loops.sizes.empty()) {
    loops.sizes = {1};
    loops.strides.assign(operands.size(), {0});
  }
  return loops;
}

}  // namespace poprun
