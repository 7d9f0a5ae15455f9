#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "replica/base/error.h"
#include "replica/graph/graph.h"
#include "replica/machine/machine.h"
#include "replica/ports/communicator.h"

/// Code shared by the exchanges between replicas: the spelling of reductions, groups of replicas, and the time of
/// taking a replica's own part of a tensor.
namespace poprun {

/// Spelling of reductions in graphs and Programs.
inline constexpr std::array<std::pair<Reduction, std::string_view>, 3> kReductions = {
    {{Reduction::kSum, "sum"}, {Reduction::kMean, "mean"}, {Reduction::kMax, "max"}}};

inline std::string_view to_text(Reduction reduction) {
  for (const auto& [value, text] : kReductions) {
    if (value == reduction) {
      return text;
    }
  }
  return {};
}

inline std::optional<Reduction> parse_reduction(std::string_view text) {
  for (const auto& [value, spelling] : kReductions) {
    if (spelling == text) {
      return value;
    }
  }
  return std::nullopt;
}

/// Returns the element type in which replicas exchange a tensor, or nothing if the tensor cannot be summed.
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

/// Checks that replicas can sum these tensors.
inline Status verify_summable(const Graph& graph, std::string_view kind, const std::vector<TensorId>& tensors) {
  for (const TensorId id : tensors) {
    const Tensor& tensor = graph.tensor(id);
    if (!element_type_of(tensor.type.data)) {
      return fail(ErrorCode::kUsage, fmt::format("{} of '{}': cannot sum {}", kind, tensor.name, to_text(tensor.type)));
    }
  }
  return {};
}

inline constexpr const char* kGroupAttribute = "group";

/// Returns SIZE of `group=SIZE`, or 0 if it is absent.
inline std::int64_t group_of(const Operation& operation) {
  const auto& values = operation.attributes.values();
  const auto found = values.find(kGroupAttribute);
  const auto* const size = found == values.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  return size == nullptr ? 0 : *size;
}

inline std::int64_t sharing_replicas(const Operation& operation, const ReplicaSystem& system) {
  const std::int64_t group = group_of(operation);
  return group > 0 ? group : system.replicas;
}

inline Attributes group_attributes(std::int64_t group) {
  Attributes attributes;
  if (group > 0) {
    attributes.set(kGroupAttribute, group);
  }
  return attributes;
}

/// Returns the device time of an operation that copies its outputs within the tiles.
inline DeviceTime time_of_copy_within_tiles(const Device& device, const ReplicaSystem& /*system*/, const Graph& graph,
                                            const Operation& operation) {
  Work work;
  work.memory_traffic = graph.bytes(operation.outputs) * 2;
  return time_of_work(device, work);
}

}  // namespace poprun
