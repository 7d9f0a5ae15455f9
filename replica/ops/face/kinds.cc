#include "replica/ops/face/kinds.h"

#include <cstdint>

namespace poprun {

bool is_set(const Attributes& attributes, const std::string& name) {
  return attributes.has(name) && attributes.integer(name) != 0;
}

std::optional<Operation> as_linear(const Graph& graph, const Operation& operation) {
  const Attributes& own = operation.attributes;
  if (operation.kind == kinds::kLinear) {
    return operation;
  }
  if (operation.kind != kinds::kMatmul || graph.tensor(operation.inputs[1]).type.shape.size() != 2 ||
      is_set(own, kTransposeA) || own.has(kScale)) {
    return std::nullopt;
  }
  Operation linear = operation;
  linear.kind = kinds::kLinear;
  linear.attributes = {};
  for (const auto& [name, value] : own.values()) {
    if (name != kTransposeA && name != kTransposeB) {
      linear.attributes.set(name, value);
    }
  }
  linear.attributes.set(kInputMajor, std::int64_t{is_set(own, kTransposeB) ? 0 : 1});
  return linear;
}

}  // namespace poprun
