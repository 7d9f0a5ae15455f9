#include "replica/compiler/cost/cost.h"

#include "replica/ops/operator.h"

namespace poprun {
namespace {

Bytes bytes_of(const Graph& graph, const std::vector<TensorId>& tensors) {
  Bytes total;
  for (const TensorId id : tensors) {
    total += graph.tensor(id).type.bytes();
  }
  return total;
}

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
  if (operation.kind == "stream_in") {
    return time_of_host_copy(device, bytes_of(graph, operation.outputs));
  }
  if (operation.kind == "stream_out") {
    return time_of_host_copy(device, bytes_of(graph, operation.inputs));
  }
  if (operation.kind == "initialise") {
    return time_of_host_copy(device, bytes_of(graph, operation.outputs));
  }
  if (operation.kind == "all_reduce") {
    return time_of_all_reduce(device, bytes_of(graph, operation.inputs), system.replicas,
                              system.ipus_per_replica);
  }
  if (operation.kind == "await_all_reduces") {
    return {};  // What is left of them by then is known once all steps are.
  }
  const Operator* op = find_operator(operation.kind);
  POPRUN_CHECK(op != nullptr);
  Signature signature{{}, {}, operation.attributes};
  for (const TensorId id : operation.inputs) {
    signature.inputs.push_back(graph.tensor(id).type);
  }
  for (const TensorId id : operation.outputs) {
    signature.outputs.push_back(graph.tensor(id).type);
  }
  Work work = op->work(signature);
  work.arithmetic = arithmetic_of(signature);
  return time_of_work(device, work);
}

}  // namespace poprun
