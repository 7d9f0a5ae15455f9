#pragma once

#include <optional>
#include <string>
#include <utility>

#include "replica/graph/attributes.h"
#include "replica/graph/types.h"

/// The attributes `shape=[..] layout="row-major" | "nhwc"`, which give the result type of expand, reshape and sum_to.
namespace poprun {

inline Attributes shaped(Shape shape, Layout layout = Layout::kRowMajor) {
  const std::string text = layout == Layout::kChannelsLast ? "nhwc" : "row-major";
  return {{"shape", std::move(shape)}, {"layout", text}};
}

/// Returns the type that the attributes describe, with elements of type `data`; nothing if one of them is missing, or
/// if the layout is nhwc and the rank is not 4.
inline std::optional<TensorType> shaped_type(DataType data, const Attributes& attributes) {
  if (!attributes.has("shape") || !attributes.has("layout")) {
    return std::nullopt;
  }
  const bool image = attributes.text("layout") == "nhwc";
  const Shape& shape = attributes.integers("shape");
  if (image && shape.size() != 4) {
    return std::nullopt;
  }
  return TensorType{data, shape, image ? Layout::kChannelsLast : Layout::kRowMajor};
}

}  // namespace poprun
