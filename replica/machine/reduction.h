#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "replica/base/error.h"
#include "replica/graph/graph.h"
#include "replica/ports/communicator.h"

/// Code shared by all_reduce and reduce_scatter.
namespace poprun {

/// How graphs and Programs spell a reduction.
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

/// Returns the element type in which replicas exchange a tensor; none if it cannot be summed.
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

/// Checks that replicas can sum tensors.
inline Status verify_summable(const Graph& graph, std::string_view kind, const std::vector<TensorId>& tensors) {
  for (const TensorId id : tensors) {
    const Tensor& tensor = graph.tensor(id);
    if (!element_type_of(tensor.type.data)) {
      return fail(ErrorCode::kUsage, fmt::format("{} of '{}': cannot sum {}", kind, tensor.name, to_text(tensor.type)));
    }
  }
  return {};
}

}  // namespace poprun
