#include "replica/compiler/cost/cost.h"

#include "replica/ops/operator.h"

namespace poprun {

DeviceTime time_of_plan(const Device& device, const planner::Plan& plan, Bytes input) {
  const planner::PlanCycles& cycles = plan.cost.cycles;
  const std::int64_t sets_of_step = plan.splits.reduction_depth() > 1 ? 4 : 3;
  DeviceTime time;
  time.exchange = cycles.exchange();
  time.compute = cycles.total() - cycles.exchange() +
                 Cycles{ceil_div(input.count(), device.tiles * device.load_bytes_per_cycle)};
  time.sync = device.sync_cycles * (2 + plan.splits.serial() * sets_of_step);
  time.flops = 2 * plan.product.macs();
  return time;
}

DeviceTime cost_of_operation(const Device& device, const ReplicaSystem& system, const Graph& graph,
                             const Operation& operation, const planner::Plan* plan) {
  if (const auto* machine = find_machine_operation(operation.kind); machine != nullptr) {
    return machine->time(device, system, graph, operation);
  }
  const Operator* op = find_operator(operation.kind);
  POPRUN_CHECK(op != nullptr);
  if (plan != nullptr) {
    return time_of_plan(device, *plan, graph.tensor(operation.inputs[0]).type.bytes());
  }
  const Signature signature = signature_of(graph, operation);
  Work work = op->work(signature);
  work.arithmetic = arithmetic_of(signature);
  return time_of_work(device, work);
}

}  // namespace poprun
