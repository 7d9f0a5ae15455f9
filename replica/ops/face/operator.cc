#include "replica/ops/face/operator.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace poprun {

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

Operator selecting(Operator op, bool (*selects)(const Signature&)) {
  op.selects = selects;
  return op;
}

Operator on_shards(Operator op, Cut cut) {
  op.on_shards = cut;
  return op;
}

Operator in_place(Operator op, std::vector<std::size_t> inputs) {
  op.in_place = std::move(inputs);
  return op;
}

bool may_take(const Operator& op, const Signature& signature, std::size_t input) {
  return std::ranges::find(op.in_place, input) != op.in_place.end() && signature.inputs[input] == signature.outputs[0];
}

bool is_view(const Operator& op, const Signature& signature, std::span<const std::int64_t> inputs,
             std::span<const std::int64_t> outputs) {
  const std::vector<Overlay> overlays = op.view != nullptr ? op.view(signature) : std::vector<Overlay>{};
  return !overlays.empty() && std::ranges::all_of(overlays, [&](const Overlay& overlay) {
    return outputs[overlay.output] - inputs[overlay.input] == overlay.distance.count();
  });
}

tl::unexpected<Error> shape_error(std::string_view kind, const Signature& signature, std::string_view needed) {
  std::string had;
  for (const TensorType& input : signature.inputs) {
    had += (had.empty() ? "" : ", ") + to_text(input);
  }
  const std::string attributes = to_text(signature.attributes);
  return fail(ErrorCode::kUsage, fmt::format("{} needs {}; given: ({}){}{}", kind, needed, had,
                                             attributes.empty() ? "" : " ", attributes));
}

Arithmetic arithmetic_of(const Signature& signature) {
  const bool half = !signature.outputs.empty() && signature.outputs[0].data == DataType::kF16 &&
                    (signature.inputs.empty() || signature.inputs[0].data == DataType::kF16);
  if (!half) {
    return Arithmetic::kF32;
  }
  return signature.attributes.has("partials") ? Arithmetic::kF16PartialsF16 : Arithmetic::kF16;
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
