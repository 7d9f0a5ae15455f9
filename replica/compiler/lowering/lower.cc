#include "replica/compiler/lowering/lower.h"

#include <map>

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

proto::Reduction reduction_of(const std::string& name) {
  if (name == "mean") {
    return proto::REDUCTION_MEAN;
  }
  return name == "max" ? proto::REDUCTION_MAX : proto::REDUCTION_SUM;
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

/// Takes the links' time of reductions in the background out of their steps: they pass on the
/// links, one after another, while further steps run, and what is left is waited for.
void overlap(proto::Function& function) {
  std::uint64_t now = 0;
  std::uint64_t links_busy_until = 0;
  for (proto::Step& step : *function.mutable_steps()) {
    proto::Cost& cost = *step.mutable_cost();
    if (step.all_reduce().in_background()) {
      cost.set_background_cycles(cost.link_cycles());
      cost.set_link_cycles(0);
      now += static_cast<std::uint64_t>(total_cycles(cost).count());
      links_busy_until = std::max(now, links_busy_until) + cost.background_cycles();
    } else if (step.has_await_all_reduces()) {
      cost.set_link_cycles(std::max(now, links_busy_until) - now);
      now = std::max(now, links_busy_until);
    } else {
      now += static_cast<std::uint64_t>(total_cycles(cost).count());
    }
  }
}

void add_ids(const std::vector<TensorId>& ids,
             google::protobuf::RepeatedField<std::uint32_t>& target) {
  for (const TensorId id : ids) {
    target.Add(index_of(id));
  }
}

class Lowering {
 public:
  Lowering(const Graph& graph, const Liveness& liveness, const Device& device,
           const ReplicaSystem& system)
      : graph_(graph), device_(device), system_(system) {
    for (std::uint32_t t = 0; t < liveness.lives.size(); ++t) {
      const Life& life = liveness.lives[t];
      if (life.used && !life.always_live) {
        dying_[life.last].push_back(t);
      }
    }
  }

  void function(const Function& source, proto::Function& target) {
    target.set_name(source.name);
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
    if (const auto dying = dying_.find(number_); dying != dying_.end()) {
      step.mutable_releases()->Add(dying->second.begin(), dying->second.end());
    }
    ++number_;
  }

  void kind(const Operation& operation, proto::Step& step) {
    const Attributes& attributes = operation.attributes;
    if (operation.kind == "initialise") {
      proto::Initialise& initialise = *step.mutable_initialise();
      initialise.set_tensor(index_of(operation.outputs[0]));
      if (attributes.has("uniform")) {
        initialise.set_uniform_bound(attributes.real("uniform"));
      } else if (attributes.has("normal")) {
        initialise.set_normal_deviation(attributes.real("normal"));
      } else {
        initialise.set_constant(attributes.real("constant"));
      }
    } else if (operation.kind == "stream_in") {
      step.mutable_stream_in()->set_stream(attributes.text("stream"));
      add_ids(operation.outputs, *step.mutable_stream_in()->mutable_tensors());
    } else if (operation.kind == "stream_out") {
      step.mutable_stream_out()->set_stream(attributes.text("stream"));
      add_ids(operation.inputs, *step.mutable_stream_out()->mutable_tensors());
    } else if (operation.kind == "all_reduce") {
      step.mutable_all_reduce()->set_reduction(reduction_of(attributes.text("reduction")));
      step.mutable_all_reduce()->set_in_background(attributes.has("background"));
      add_ids(operation.inputs, *step.mutable_all_reduce()->mutable_tensors());
    } else if (operation.kind == "await_all_reduces") {
      add_ids(operation.inputs, *step.mutable_await_all_reduces()->mutable_tensors());
    } else {
      proto::Execute& execute = *step.mutable_execute();
      execute.set_operation(operation.kind);
      execute.set_name(graph_.tensor(operation.outputs[0]).name);
      add_ids(operation.inputs, *execute.mutable_inputs());
      add_ids(operation.outputs, *execute.mutable_outputs());
      execute.set_attributes(to_text(attributes));
      ++executes_;
    }
  }

  const Graph& graph_;
  const Device& device_;
  const ReplicaSystem& system_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> dying_;  ///< Tensors by last step.
  std::uint32_t number_ = 0;
  std::uint64_t executes_ = 0;
};

void add_tensors(const Graph& graph, const Liveness& liveness, Program& program) {
  for (std::size_t t = 0; t < graph.tensors().size(); ++t) {
    const Tensor& source = graph.tensors()[t];
    const Life& life = liveness.lives[t];
    proto::Tensor& target = *program.add_tensors();
    target.set_name(source.name);
    target.set_type(to_text(source.type));
    target.set_role(role_of(source.role));
    target.set_bytes(static_cast<std::uint64_t>(source.type.bytes().count()));
    target.set_always_live(life.always_live);
    target.set_first_step(life.first);
    target.set_last_step(life.last);
  }
}

}  // namespace

MemoryClaims claims_of(const Graph& graph, const Liveness& liveness) {
  MemoryClaims claims;
  for (std::uint32_t t = 0; t < liveness.lives.size(); ++t) {
    const Life& life = liveness.lives[t];
    if (life.used) {
      const TensorId id{t};
      claims.intervals.push_back({life.first, life.last, graph.tensor(id).type.bytes()});
      claims.tensor.push_back(id);
    }
  }
  return claims;
}

Program lower(const Graph& graph, const Liveness& liveness, const MemoryClaims& claims,
              const MemoryPlan& plan, const Device& device, const ReplicaSystem& system) {
  Program program;
  program.mutable_device()->set_name(device.name);
  program.mutable_device()->set_clock_hz(device.clock_hz);
  program.mutable_device()->set_tiles(static_cast<std::uint32_t>(device.tiles));
  program.mutable_device()->set_bytes_per_tile(
      static_cast<std::uint64_t>(device.bytes_per_tile.count()));
  program.set_ipus(static_cast<std::uint32_t>(system.ipus_per_replica));

  add_tensors(graph, liveness, program);
  proto::IpuMemory& memory = *program.add_memory();
  memory.set_capacity(static_cast<std::uint64_t>(device.capacity().count()));
  memory.set_peak(static_cast<std::uint64_t>(plan.peak.count()));
  memory.set_lower_bound(static_cast<std::uint64_t>(plan.lower_bound.count()));
  memory.set_worst_step(plan.worst_step);
  Bytes always_live;
  for (std::size_t i = 0; i < claims.intervals.size(); ++i) {
    proto::Tensor& tensor = *program.mutable_tensors(static_cast<int>(index_of(claims.tensor[i])));
    tensor.set_offset(static_cast<std::uint64_t>(plan.offsets[i].count()));
    if (tensor.always_live()) {
      always_live += claims.intervals[i].size;
    }
    if (tensor.role() == proto::ROLE_PARAMETER) {
      program.set_parameter_count(
          program.parameter_count() +
          static_cast<std::uint64_t>(graph.tensor(claims.tensor[i]).type.elements()));
    }
  }
  memory.set_always_live(static_cast<std::uint64_t>(always_live.count()));
  for (std::int64_t ipu = 1; ipu < system.ipus_per_replica; ++ipu) {
    program.add_memory()->set_capacity(static_cast<std::uint64_t>(device.capacity().count()));
  }

  Lowering lowering(graph, liveness, device, system);
  for (const Function& function : graph.functions) {
    proto::Function& target = *program.add_functions();
    lowering.function(function, target);
    overlap(target);
  }
  program.set_operator_count(lowering.executes());
  return program;
}

}  // namespace poprun
