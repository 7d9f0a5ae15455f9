#pragma once

#include <optional>

#include "replica/graph/types.h"
#include "replica/ports/communicator.h"

namespace poprun {

/// The element type in which replicas exchange a tensor; none if it cannot be summed.
inline std::optional<ElementType> element_type_of(DataType type) {
  switch (type) {
    case DataType::kF32:
      return ElementType::kF32;
    case DataType::kF16:
      return ElementType::kF16;
    case DataType::kI32:
      return ElementType::kI32;
    case DataType::kU8:
      break;
  }
  return std::nullopt;
}

}  // namespace poprun
