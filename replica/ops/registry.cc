#include <algorithm>

#include <fmt/format.h>

#include "replica/ops/operator.h"

namespace poprun {

#define POPRUN_FAMILY(family) std::vector<Operator> family##_operators();
#include "replica/ops/families.inc"
#undef POPRUN_FAMILY

namespace {

std::vector<Operator> collect() {
  std::vector<Operator> all;
  const auto take = [&all](std::vector<Operator> family) {
    std::ranges::move(family, std::back_inserter(all));
  };
#define POPRUN_FAMILY(family) take(family##_operators());
#include "replica/ops/families.inc"
#undef POPRUN_FAMILY
  std::ranges::sort(all, {}, &Operator::kind);
  return all;
}

}  // namespace

const std::vector<Operator>& all_operators() {
  static const std::vector<Operator> all = collect();
  return all;
}

const Operator* find_operator(std::string_view kind) {
  const auto& all = all_operators();
  const auto found = std::ranges::lower_bound(all, kind, {}, &Operator::kind);
  return found != all.end() && found->kind == kind ? &*found : nullptr;
}

Signature signature_of(const Graph& graph, const Operation& operation) {
  Signature signature{{}, {}, operation.attributes};
  for (const TensorId id : operation.inputs) {
    signature.inputs.push_back(graph.tensor(id).type);
  }
  for (const TensorId id : operation.outputs) {
    signature.outputs.push_back(graph.tensor(id).type);
  }
  return signature;
}

tl::unexpected<Error> shape_error(std::string_view kind, const Signature& signature,
                                  std::string_view needed) {
  std::string had;
  for (const TensorType& input : signature.inputs) {
    had += (had.empty() ? "" : ", ") + to_text(input);
  }
  const std::string attributes = to_text(signature.attributes);
  return fail(ErrorCode::kUsage, fmt::format("{} needs {}; it got ({}){}{}", kind, needed, had,
                                             attributes.empty() ? "" : " ", attributes));
}

Work elementwise_work(const Signature& signature, std::int64_t flops) {
  Work work;
  for (const TensorType& type : signature.inputs) {
    work.memory_traffic += type.bytes();
  }
  for (const TensorType& type : signature.outputs) {
    work.memory_traffic += type.bytes();
    work.vector_flops += flops * type.elements();
  }
  return work;
}

}  // namespace poprun
