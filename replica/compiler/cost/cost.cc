#include "replica/compiler/cost/cost.h"

#include "replica/ops/operator.h"

namespace poprun {
namespace {

/// float16 where all tensors but scalars and statistics are: the first input and the first output.
Arithmetic arithmetic_of(const Signature& signature) {
  const bool half = !signature.outputs.empty() && signature.outputs[0].data == DataType::kF16 &&
                    (signature.inputs.empty() || signature.inputs[0].data == DataType::kF16);
  if (!half) {
    return Arithmetic::kF32;
  }
  return signature.attributes.has("partials") ? Arithmetic::kF16PartialsF16 : Arithmetic::kF16;
}

}  // namespace

DeviceTime cost_of_operation(const Device& device, const ReplicaSystem& system, const Graph& graph,
                             const Operation& operation) {
  if (const auto* machine = find_machine_operation(operation.kind); machine != nullptr) {
    return machine->time(device, system, graph, operation);
  }
  const Operator* op = find_operator(operation.kind);
  POPRUN_CHECK(op != nullptr);
  const Signature signature = signature_of(graph, operation);
  Work work = op->work(signature);
  work.arithmetic = arithmetic_of(signature);
  return time_of_work(device, work);
}

}  // namespace poprun
