#pragma once

#include <cstdint>
#include <vector>

#include <google/protobuf/repeated_field.h>

#include "replica/graph/graph.h"

/// Converts between the tensor lists of steps and of graph operations.
namespace poprun {

inline void add_tensors(const std::vector<TensorId>& ids, google::protobuf::RepeatedField<std::uint32_t>& target) {
  for (const TensorId id : ids) {
    target.Add(index_of(id));
  }
}

inline std::vector<std::uint32_t> ids_of(const google::protobuf::RepeatedField<std::uint32_t>& tensors) {
  return {tensors.begin(), tensors.end()};
}

}  // namespace poprun
