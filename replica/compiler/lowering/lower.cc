#include "replica/compiler/lowering/lower.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>

#include "replica/compiler/tiles/operation_time.h"
#include "replica/machine/machine.h"
#include "replica/machine/transfer.h"
#include "replica/ops/face/operator.h"

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

class Lowering {
 public:
  /// `placed` contains the tensors with their addresses.
  Lowering(const LaidOut& laid_out, const Program& placed, const ReplicaSystem& system, const StageParts& parts)
      : graph_(laid_out.graph),
        liveness_(laid_out.liveness),
        products_(laid_out.plans),
        aliases_(laid_out.aliases),
        mappings_(laid_out.mappings),
        placed_(placed),
        device_(laid_out.device),
        system_(system),
        parts_(parts) {
    for (std::uint32_t t = 0; t < aliases_.size(); ++t) {
      if (aliases_[t]) {
        blocks_[aliases_[t]->block].push_back(t);
      }
    }
  }

  void function(const Function& source, proto::Function& target) {
    target.set_name(source.name);
    if (const auto found = parts_.find(source.name); found != parts_.end()) {
      proto::Part& part = *target.mutable_part();
      part.set_stage(found->second.stage);
      part.set_ipu(found->second.ipu);
      part.set_backward(found->second.is_backward);
      part.set_recomputes(found->second.recomputes);
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
  void operations(const Region& region, google::protobuf::RepeatedPtrField<proto::Step>& steps) {
    for (const Operation& operation : region.operations) {
      proto::Step& step = *steps.Add();
      *step.mutable_cost() =
          to_proto(is_view_in_place(operation)
                       ? cost_of_view(device_, operation, moves_)
                       : cost_of_operation(device_, system_, graph_, operation, planned(number_), &moves_));
      if (device_.io_tiles > 0) {
        step.set_transfer(off_chip_transfer(graph_, operation).direction);
      }
      kind(operation, step);
      finish(step);
    }
  }

  [[nodiscard]] const PlannedProduct* planned(std::uint32_t step) const {
    return step < products_.size() && products_[step] ? &*products_[step] : nullptr;
  }

  /// Numbers a step and lists the tensors that die there.
  void finish(proto::Step& step) {
    step.set_number(number_);
    for (const std::uint32_t tensor : liveness_.deaths[number_]) {
      if (!is_shared_on(tensor)) {
        step.add_releases(tensor);
      }
    }
    ++number_;
  }

  /// Returns whether `tensor` shares a byte with another tensor that may still be live after this step.
  [[nodiscard]] bool is_shared_on(std::uint32_t tensor) const {
    if (tensor >= aliases_.size() || !aliases_[tensor]) {
      return false;
    }
    const std::vector<std::uint32_t>& dying = liveness_.deaths[number_];
    return std::ranges::any_of(blocks_.at(aliases_[tensor]->block), [&](std::uint32_t other) {
      return other != tensor && share_bytes(tensor_at(other), tensor_at(tensor)) &&
             lives_at(tensor_at(other), number_) && !std::ranges::binary_search(dying, other);
    });
  }

  [[nodiscard]] const proto::Tensor& tensor_at(std::uint32_t id) const { return placed_.tensors(static_cast<int>(id)); }

  [[nodiscard]] bool is_view_in_place(const Operation& operation) const {
    const Operator* op = find_operator(operation.kind);
    if (op == nullptr || op->view == nullptr) {
      return false;
    }
    const auto addresses = [this](const std::vector<TensorId>& ids) {
      std::vector<std::int64_t> offsets;
      std::ranges::transform(ids, std::back_inserter(offsets), [this](TensorId id) {
        const proto::Tensor& tensor = tensor_at(static_cast<std::uint32_t>(index_of(id)));
        return static_cast<std::int64_t>(tensor.placement().offset());
      });
      return offsets;
    };
    return is_view(*op, signature_of(graph_, operation), addresses(operation.inputs), addresses(operation.outputs));
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
    if (const PlannedProduct* product = planned(number_); product != nullptr) {
      execute.set_plan(planner::to_line(*product->plan));
    }
    ++executes_;
  }

  const Graph& graph_;
  const Liveness& liveness_;
  const ProductPlans& products_;
  const Aliases& aliases_;
  const std::vector<Mapping>& mappings_;
  const Program& placed_;
  const Device& device_;
  const ReplicaSystem& system_;
  const StageParts& parts_;
  Moves moves_{graph_, mappings_, device_};
  std::map<std::uint32_t, std::vector<std::uint32_t>> blocks_;  ///< The tensors of each block.
  std::uint32_t number_ = 0;
  std::uint64_t executes_ = 0;
};

void list_tensors(const Graph& graph, const Liveness& liveness, const std::vector<Mapping>& mappings,
                  Program& program) {
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
    target.mutable_placement()->set_memory(source.is_remote() ? proto::MEMORY_STREAMING : proto::MEMORY_IN_PROCESSOR);
    if (source.shard_of) {
      target.set_shard_of(to_text(*source.shard_of));
    }
    if (source.residence) {
      proto::Residence& residence = *target.mutable_residence();
      residence.set_tensor(index_of(source.residence->tensor));
      residence.set_entry(static_cast<std::int32_t>(source.residence->entry));
    }
    *target.mutable_mapping() = to_proto(mappings[t]);
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

std::uint64_t count(Bytes bytes) {
  return static_cast<std::uint64_t>(bytes.count());
}

void place(const MemoryClaims& claims, const MemoryPlan& plan, Program& program) {
  for (std::size_t i = 0; i < claims.claims.size(); ++i) {
    proto::Tensor& tensor = *program.mutable_tensors(static_cast<int>(index_of(claims.tensor[i])));
    tensor.mutable_placement()->set_offset(count(plan.offsets[i]));
  }
}

proto::TileLayout layout_of(const IpuPlan& ipu) {
  proto::TileLayout layout;
  for (const TileClaim& source : ipu.tile_claims.claims()) {
    proto::TileClaim& claim = *layout.add_claims();
    claim.set_category(std::string(to_text(source.category)));
    claim.mutable_tensors()->Add(source.tensors.begin(), source.tensors.end());
    for (const Span& span : ipu.tile_claims.spans()[source.spans]) {
      proto::Span& lives = *claim.add_lives();
      lives.set_first(span.first);
      lives.set_last(span.last);
    }
  }
  for (const TileClass& source : ipu.tiles.classes) {
    proto::TileClass& target = *layout.add_classes();
    target.mutable_tiles()->Add(source.tiles.begin(), source.tiles.end());
    target.set_peak(count(source.peak));
    for (std::size_t i = 0; i < source.offsets.size(); ++i) {
      const TileRow& row = ipu.tile_claims.rows()[ipu.tile_claims.claims()[i].row];
      target.add_bytes(row[source.tiles.front()]);
      target.add_offsets(count(source.offsets[i]));
    }
  }
  return layout;
}

void describe_tiles(const IpuPlan& ipu, std::uint32_t steps, proto::IpuMemory& memory) {
  const TileClass& fullest = ipu.tiles.classes[ipu.tiles.fullest()];
  const LiveBytes live = live_bytes(ipu.tile_claims, steps);
  memory.set_peak(count(ipu.tiles.total_peak()));
  memory.set_lower_bound(count(live.most));
  memory.set_worst_step(live.worst_step);
  memory.set_always_live(count(live.always));
  memory.set_fullest_tile(fullest.tiles.front());
  memory.set_fullest_tile_peak(count(fullest.peak));
  memory.set_tile_classes(static_cast<std::uint32_t>(ipu.tiles.classes.size()));
}

}  // namespace

MemoryClaims claims_of(const Graph& graph, const Liveness& liveness, std::uint32_t ipu, const Aliases& aliases,
                       Memory memory) {
  MemoryClaims claims;
  for (std::uint32_t t = 0; t < liveness.lives.size(); ++t) {
    const Tensor& tensor = graph.tensors()[t];
    if (tensor.ipu == ipu && tensor.memory == memory && !liveness.lives[t].spans.empty()) {
      Claim& claim = claims.claims.emplace_back();
      claim.spans = liveness.lives[t].spans;
      claim.size = tensor.type.bytes();
      if (t < aliases.size() && aliases[t]) {
        claim.block = aliases[t]->block;
        claim.in_block = aliases[t]->offset;
      }
      claims.tensor.push_back(TensorId{t});
    }
  }
  return claims;
}

Program lower(const LaidOut& laid_out, const std::vector<IpuPlan>& plans, const ReplicaSystem& system,
              const StageParts& parts) {
  const Graph& graph = laid_out.graph;
  const Liveness& liveness = laid_out.liveness;
  const Device& device = laid_out.device;
  Program program;
  program.mutable_device()->set_name(device.name);
  program.mutable_device()->set_clock_hz(device.clock_hz);
  program.mutable_device()->set_tiles(static_cast<std::uint32_t>(device.tiles + device.io_tiles));
  program.mutable_device()->set_io_tiles(static_cast<std::uint32_t>(device.io_tiles));
  program.mutable_device()->set_bytes_per_tile(static_cast<std::uint64_t>(device.bytes_per_tile.count()));
  program.set_ipus(static_cast<std::uint32_t>(system.ipus_per_replica));

  list_tensors(graph, liveness, laid_out.mappings, program);
  for (const IpuPlan& plan : plans) {
    place(plan.claims, plan.plan, program);
    place(plan.remote_claims, plan.remote_plan, program);
    proto::IpuMemory& memory = *program.add_memory();
    memory.set_capacity(count(device.capacity()));
    memory.set_bytes_per_tile(count(device.bytes_per_tile));
    memory.set_images_peak(count(plan.plan.peak));
    memory.set_streaming_capacity(count(device.streaming_bytes));
    memory.set_streaming_peak(count(plan.remote_plan.peak));
    describe_tiles(plan, liveness.step_count, memory);
  }
  for (std::size_t t = 0; t < graph.tensors().size(); ++t) {
    const Tensor& tensor = graph.tensors()[t];
    if (tensor.role == Role::kParameter && !tensor.is_remote() && !tensor.shard_of &&
        !liveness.lives[t].spans.empty()) {
      program.set_parameter_count(program.parameter_count() + static_cast<std::uint64_t>(tensor.type.elements()));
    }
  }
  Lowering lowering(laid_out, program, system, parts);
  for (const Function& function : graph.functions) {
    lowering.function(function, *program.add_functions());
  }
  program.set_operator_count(lowering.executes());
  return program;
}

void add_layouts(const std::vector<IpuPlan>& plans, Program& program) {
  for (std::size_t ipu = 0; ipu < plans.size(); ++ipu) {
    *program.mutable_memory(static_cast<int>(ipu))->mutable_layout() = layout_of(plans[ipu]);
  }
}

}  // namespace poprun
