#include "replica/compiler/lowering/lower.h"

#include <optional>
#include <set>
#include <string>

#include "replica/compiler/cost/cost.h"
#include "replica/machine/machine.h"
#include "replica/machine/step_tensors.h"

namespace poprun {
namespace {

proto::Role role_of(Role role) {
  switch (role) {
    case Role::kActivation:
      return proto::ROLE_ACTIVATION;
    case Role::kParameter:
      return proto::ROLE_PARAMETER;
    case Role::kOptimizerState:
      return proto::ROLE_OPTIMIZER_STATE;
    case Role::kBuffer:
      return proto::ROLE_BUFFER;
    case Role::kGradient:
      return proto::ROLE_GRADIENT;
    case Role::kStream:
      return proto::ROLE_STREAM;
    case Role::kMetric:
      return proto::ROLE_METRIC;
    case Role::kConstant:
      return proto::ROLE_CONSTANT;
  }
  return proto::ROLE_UNSPECIFIED;
}

void set_cost(proto::Cost& cost, const DeviceTime& time) {
  const auto cycles = [](Cycles c) { return static_cast<std::uint64_t>(c.count()); };
  cost.set_compute_cycles(cycles(time.compute));
  cost.set_exchange_cycles(cycles(time.exchange));
  cost.set_link_cycles(cycles(time.link));
  cost.set_host_cycles(cycles(time.host));
  cost.set_sync_cycles(cycles(time.sync));
  cost.set_flops(static_cast<std::uint64_t>(time.flops));
}

class Lowering {
 public:
  Lowering(const Graph& graph, const Liveness& liveness, const Device& device,
           const ReplicaSystem& system)
      : graph_(graph), liveness_(liveness), device_(device), system_(system) {}

  void function(const Function& source, proto::Function& target) {
    target.set_name(source.name);
    if (const std::optional<proto::Part> part = part_of(source)) {
      *target.mutable_part() = *part;
    }
    for (const Region& region : source.regions) {
      if (region.repeat == 1) {
        operations(region, *target.mutable_steps());
        continue;
      }
      proto::Step repeat;
      repeat.mutable_repeat()->set_count(static_cast<std::uint32_t>(region.repeat));
      operations(region, *repeat.mutable_repeat()->mutable_steps());
      finish(repeat);
      *target.add_steps() = std::move(repeat);
    }
  }

  [[nodiscard]] std::uint64_t executes() const { return executes_; }

 private:
  /// What a function that others call is of the model.
  [[nodiscard]] std::optional<proto::Part> part_of(const Function& function) const {
    if (!called_.contains(function.name)) {
      return std::nullopt;
    }
    proto::Part part;
    for (const Region& region : function.regions) {
      for (const Operation& operation : region.operations) {
        part.set_stage(operation.origin.stage);
        part.set_backward(part.backward() || operation.origin.direction != Direction::kForward);
        part.set_recomputes(part.recomputes() ||
                            operation.origin.direction == Direction::kRecomputed);
        if (!operation.outputs.empty()) {
          part.set_ipu(graph_.tensor(operation.outputs[0]).ipu);
        }
      }
    }
    return part;
  }

  void operations(const Region& region, google::protobuf::RepeatedPtrField<proto::Step>& steps) {
    for (const Operation& operation : region.operations) {
      proto::Step& step = *steps.Add();
      set_cost(*step.mutable_cost(), cost_of_operation(device_, system_, graph_, operation));
      kind(operation, step);
      finish(step);
    }
  }

  /// Numbers a step and lists what dies there.
  void finish(proto::Step& step) {
    step.set_number(number_);
    const std::vector<std::uint32_t>& dying = liveness_.deaths[number_];
    step.mutable_releases()->Add(dying.begin(), dying.end());
    ++number_;
  }

  void kind(const Operation& operation, proto::Step& step) {
    if (const auto* machine = find_machine_operation(operation.kind); machine != nullptr) {
      machine->lower(operation, step);
      return;
    }
    proto::Execute& execute = *step.mutable_execute();
    execute.set_operation(operation.kind);
    execute.set_name(graph_.tensor(operation.outputs[0]).name);
    add_tensors(operation.inputs, *execute.mutable_inputs());
    add_tensors(operation.outputs, *execute.mutable_outputs());
    execute.set_attributes(to_text(operation.attributes));
    ++executes_;
  }

  const Graph& graph_;
  const Liveness& liveness_;
  const Device& device_;
  const ReplicaSystem& system_;
  std::set<std::string> called_ = called_functions(graph_);
  std::uint32_t number_ = 0;
  std::uint64_t executes_ = 0;
};

void list_tensors(const Graph& graph, const Liveness& liveness, Program& program) {
  for (std::size_t t = 0; t < graph.tensors().size(); ++t) {
    const Tensor& source = graph.tensors()[t];
    const Life& life = liveness.lives[t];
    proto::Tensor& target = *program.add_tensors();
    target.set_name(source.name);
    target.set_type(to_text(source.type));
    target.set_role(role_of(source.role));
    target.set_bytes(static_cast<std::uint64_t>(source.type.bytes().count()));
    target.set_always_live(life.always_live);
    target.mutable_placement()->set_ipu(source.ipu);
    if (source.copy_of) {
      target.set_copy_of(static_cast<std::uint32_t>(index_of(*source.copy_of)));
    }
    for (const Span& span : life.spans) {
      proto::Span& lives = *target.add_lives();
      lives.set_first(span.first);
      lives.set_last(span.last);
    }
  }
}

/// One IPU's tensors and its memory.
void place_tensors(const IpuPlan& ipu, Program& program) {
  proto::IpuMemory& memory = *program.add_memory();
  memory.set_peak(static_cast<std::uint64_t>(ipu.plan.peak.count()));
  memory.set_lower_bound(static_cast<std::uint64_t>(ipu.plan.lower_bound.count()));
  memory.set_worst_step(ipu.plan.worst_step);
  Bytes always_live;
  for (std::size_t i = 0; i < ipu.claims.claims.size(); ++i) {
    proto::Tensor& tensor =
        *program.mutable_tensors(static_cast<int>(index_of(ipu.claims.tensor[i])));
    tensor.mutable_placement()->set_offset(static_cast<std::uint64_t>(ipu.plan.offsets[i].count()));
    if (tensor.always_live()) {
      always_live += ipu.claims.claims[i].size;
    }
  }
  memory.set_always_live(static_cast<std::uint64_t>(always_live.count()));
}

}  // namespace

MemoryClaims claims_of(const Graph& graph, const Liveness& liveness, std::uint32_t ipu) {
  MemoryClaims claims;
  for (std::uint32_t t = 0; t < liveness.lives.size(); ++t) {
    const Tensor& tensor = graph.tensors()[t];
    if (tensor.ipu == ipu && !liveness.lives[t].spans.empty()) {
      claims.claims.push_back({liveness.lives[t].spans, tensor.type.bytes()});
      claims.tensor.push_back(TensorId{t});
    }
  }
  return claims;
}

Program lower(const Graph& graph, const Liveness& liveness, const std::vector<IpuPlan>& plans,
              const Device& device, const ReplicaSystem& system) {
  Program program;
  program.mutable_device()->set_name(device.name);
  program.mutable_device()->set_clock_hz(device.clock_hz);
  program.mutable_device()->set_tiles(static_cast<std::uint32_t>(device.tiles));
  program.mutable_device()->set_bytes_per_tile(
      static_cast<std::uint64_t>(device.bytes_per_tile.count()));
  program.set_ipus(static_cast<std::uint32_t>(system.ipus_per_replica));

  list_tensors(graph, liveness, program);
  for (const IpuPlan& plan : plans) {
    place_tensors(plan, program);
    program.mutable_memory()->rbegin()->set_capacity(
        static_cast<std::uint64_t>(device.capacity().count()));
  }
  for (std::size_t t = 0; t < graph.tensors().size(); ++t) {
    if (graph.tensors()[t].role == Role::kParameter && !liveness.lives[t].spans.empty()) {
      program.set_parameter_count(program.parameter_count() +
                                  static_cast<std::uint64_t>(graph.tensors()[t].type.elements()));
    }
  }
  Lowering lowering(graph, liveness, device, system);
  for (const Function& function : graph.functions) {
    lowering.function(function, *program.add_functions());
  }
  program.set_operator_count(lowering.executes());
  return program;
}

}  // namespace poprun
