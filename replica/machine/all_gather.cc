#include "replica/machine/shards.h"

namespace poprun {
namespace machine::all_gather {
namespace {

constexpr std::string_view kKind = "all_gather";

class AllGatherAction final : public Action {
 public:
  AllGatherAction(std::vector<ShardPair> pairs, Communicator& group) : pairs_(std::move(pairs)), group_(group) {}

  Status run() override {
    for (const ShardPair& pair : pairs_) {
      const std::size_t whole = pair.whole.bytes.size();
      if (pair.filled() == whole) {
        POPRUN_TRY(group_.all_gather(pair.shard.bytes, pair.whole.bytes, pair.whole.name));
        continue;
      }
      filled_.resize(pair.filled());
      POPRUN_TRY(group_.all_gather(pair.shard.bytes, filled_, pair.whole.name));
      std::memcpy(pair.whole.bytes.data(), filled_.data(), whole);
    }
    return {};
  }

  [[nodiscard]] std::string activity() const override { return fmt::format("all-gather of {} tensors", pairs_.size()); }

 private:
  std::vector<ShardPair> pairs_;
  Communicator& group_;
  std::vector<std::byte> filled_;  ///< A tensor, padded to full shards.
};

Status verify(const Graph& graph, const Operation& operation) {
  if (operation.attributes != group_attributes(group_of(operation))) {
    return fail(ErrorCode::kUsage, fmt::format("all_gather takes group=SIZE; had: {}", to_text(operation.attributes)));
  }
  return verify_shards(graph, kKind, operation.outputs, operation.inputs);
}

DeviceTime time(const Device& device, const ReplicaSystem& system, const Graph& graph, const Operation& operation) {
  return time_of_scatter(device, graph.bytes(operation.outputs), sharing_replicas(operation, system),
                         system.ipus_per_replica);
}

void lower(const Operation& operation, proto::Step& step) {
  add_tensors(operation.inputs, *step.mutable_all_gather()->mutable_shards());
  add_tensors(operation.outputs, *step.mutable_all_gather()->mutable_tensors());
  step.mutable_all_gather()->set_group(static_cast<std::uint32_t>(group_of(operation)));
}

StepTensors tensors(const proto::Step& step) {
  const proto::AllGather& gather = step.all_gather();
  return {.reads = ids_of(gather.shards()),
          .writes = ids_of(gather.tensors()),
          .begins_exchange = ids_of(gather.shards()),
          .ends_exchange = ids_of(gather.tensors())};
}

Result<std::unique_ptr<Action>> prepare(const proto::Step& step, Machine& machine) {
  const proto::AllGather& gather = step.all_gather();
  POPRUN_ASSIGN(std::vector<ShardPair> pairs, shard_pairs(gather.tensors(), gather.shards(), gather.group(), machine));
  POPRUN_ASSIGN(Communicator * group, machine.group(gather.group()));
  return std::make_unique<AllGatherAction>(std::move(pairs), *group);
}

}  // namespace

std::vector<MachineOperation> operations() {
  return {{.kind = kKind,
           .step = proto::Step::kAllGather,
           .spends = Spends::kWaitingForReplicas,
           .verify = verify,
           .time = time,
           .lower = lower,
           .tensors = tensors,
           .prepare = prepare}};
}

}  // namespace machine::all_gather

Operation AllGather::operation() const {
  return {std::string{machine::all_gather::kKind}, shards, tensors, group_attributes(group)};
}

bool AllGather::is(const Operation& operation) {
  return operation.kind == machine::all_gather::kKind;
}

}  // namespace poprun
