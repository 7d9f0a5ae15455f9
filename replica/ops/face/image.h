#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "replica/graph/attributes.h"
#include "replica/graph/types.h"

/// Checks shared by operators that move a window over images.
namespace poprun {

/// True if the type is f32[N,C,H,W]{nhwc}.
inline bool is_image(const TensorType& type) {
  return type.data == DataType::kF32 && type.shape.size() == 4 && type.layout == Layout::kChannelsLast;
}

/// True if the attribute exists and has `count` integers, all at least `least`.
inline bool are_integers(const Attributes& attributes, const std::string& name, std::size_t count, std::int64_t least) {
  return attributes.has(name) && attributes.integers(name).size() == count &&
         std::ranges::min(attributes.integers(name)) >= least;
}

}  // namespace poprun
