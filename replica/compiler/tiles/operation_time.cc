#include "replica/compiler/tiles/operation_time.h"

#include <algorithm>
#include <numeric>

#include "replica/machine/operations.h"
#include "replica/machine/transfer.h"
#include "replica/ops/face/operator.h"

namespace poprun {
namespace {

Cycles cycles_of(Bytes bytes, std::int64_t rate) {
  return Cycles{ceil_div(bytes.count(), rate)};
}

Cycles exchange_of(const Device& device, const std::vector<Received>& received) {
  Cycles cycles;
  for (const Received& tensor : received) {
    cycles += time_of_exchange(device, tensor.most().count());
  }
  return cycles;
}

/// The factor by which the fullest tile takes longer than if all tiles held the same amount: `numerator / denominator`.
struct Imbalance {
  std::int64_t numerator = 1;
  std::int64_t denominator = 1;

  /// Returns `amount` times the imbalance, rounded up.
  [[nodiscard]] std::int64_t times(std::int64_t amount) const {
    return amount / denominator * numerator + ceil_div(amount % denominator * numerator, denominator);
  }
};

Imbalance imbalance_of(const Device& device, std::int64_t fullest, std::int64_t elements) {
  if (elements == 0) {
    return {};
  }
  const std::int64_t all = fullest * device.tiles;
  const std::int64_t common = std::gcd(all, elements);
  return {all / common, elements / common};
}

DeviceTime time_on_fullest(const Device& device, const Work& work, const Imbalance& imbalance) {
  Work everywhere = work;
  everywhere.macs = imbalance.times(work.macs);
  everywhere.vector_flops = imbalance.times(work.vector_flops);
  everywhere.memory_traffic = Bytes{imbalance.times(work.memory_traffic.count())};
  everywhere.exchanged = Bytes{imbalance.times(work.exchanged.count())};
  DeviceTime time = time_of_work(device, everywhere);
  time.flops = time_of_work(device, work).flops;
  return time;
}

/// Returns the time of an operation that works on the tiles of Moves::home.
DeviceTime time_at_home(const Device& device, const Graph& graph, const Operation& operation, const Work& work,
                        Moves& moves) {
  const TensorId home = moves.home(operation);
  DeviceTime time =
      time_on_fullest(device, work, imbalance_of(device, moves.counts(home).most, graph.tensor(home).type.elements()));
  time.exchange = std::max(time.exchange, exchange_of(device, moves.received(operation)));
  return time;
}

bool stays_on_tiles(const Graph& graph, const Operation& operation) {
  return (Stash::is(operation) || Restore::is(operation) || Copy::is(operation)) && is_within_ipu(graph, operation);
}

DeviceTime time_of_local_copy(const Device& device, const Graph& graph, const Operation& operation, Moves& moves) {
  const std::vector<TensorId>& written = Stash::is(operation) ? operation.inputs : operation.outputs;
  Work work;
  work.memory_traffic = graph.bytes(written) * 2;
  return time_at_home(device, graph, operation, work, moves);
}

/// Returns the time from the operation's cost model, adjusted by through_io_tiles if the operation uses the I/O tiles.
DeviceTime time_of_machine(const MachineOperation& machine, const Device& device, const ReplicaSystem& system,
                           const Graph& graph, const Operation& operation) {
  const DeviceTime time = machine.time(device, system, graph, operation);
  if (device.io_tiles == 0) {
    return time;
  }
  const OffChipTransfer transfer = off_chip_transfer(graph, operation);
  return transfer.is_any() ? through_io_tiles(device, time, transfer.most()) : time;
}

DeviceTime time_of_product(const Device& device, const Graph& graph, const Operation& operation,
                           const PlannedProduct& planned, Moves* moves) {
  DeviceTime time = time_of_plan(device, *planned.plan, graph.tensor(operation.inputs[0]).type.bytes());
  if (moves == nullptr) {
    return time;
  }
  const std::vector<Received> regrouped = moves->regrouped(operation, planned);
  time.exchange += exchange_of(device, regrouped);
  for (const Received& operand : regrouped) {
    if (operand.operand == 1U) {
      time.compute += cycles_of(operand.most(), device.load_bytes_per_cycle);
    }
  }
  return time;
}

}  // namespace

DeviceTime time_of_plan(const Device& device, const planner::Plan& plan, Bytes input) {
  const planner::PlanCycles& cycles = plan.cost.cycles;
  const bool adds_partials = plan.splits.reduction_depth() > 1;
  DeviceTime time;
  const std::int64_t sets = 2 + plan.splits.serial() * (adds_partials ? 4 : 3);
  const std::int64_t exchanges = 1 + plan.splits.serial() * (adds_partials ? 2 : 1);
  time.exchange = cycles.exchange() + device.exchange_start_cycles * exchanges;
  time.compute = cycles.total() - cycles.exchange() + cycles_of(input, device.tiles * device.load_bytes_per_cycle) +
                 device.call_cycles * sets;
  time.sync = device.sync_cycles * sets;
  time.flops = 2 * plan.product.macs();
  return time;
}

DeviceTime cost_of_operation(const Device& device, const ReplicaSystem& system, const Graph& graph,
                             const Operation& operation, const PlannedProduct* planned, Moves* moves) {
  if (const auto* machine = find_machine_operation(operation.kind); machine != nullptr) {
    return moves != nullptr && stays_on_tiles(graph, operation)
               ? time_of_local_copy(device, graph, operation, *moves)
               : time_of_machine(*machine, device, system, graph, operation);
  }
  const Operator* op = find_operator(operation.kind);
  POPRUN_CHECK(op != nullptr);
  if (planned != nullptr) {
    return time_of_product(device, graph, operation, *planned, moves);
  }
  const Signature signature = signature_of(graph, operation);
  Work work = op->work(signature);
  work.arithmetic = arithmetic_of(signature);
  return moves != nullptr ? time_at_home(device, graph, operation, work, *moves) : time_of_work(device, work);
}

DeviceTime cost_of_view(const Device& device, const Operation& operation, Moves& moves) {
  DeviceTime time;
  time.exchange = exchange_of(device, moves.received(operation));
  if (time.exchange > Cycles{0}) {
    time.sync = device.sync_cycles;
  }
  return time;
}

}  // namespace poprun
