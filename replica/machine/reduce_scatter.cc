#include "replica/machine/reduction.h"
#include "replica/machine/shards.h"

namespace poprun {
namespace machine::reduce_scatter {
namespace {

constexpr std::string_view kKind = "reduce_scatter";
constexpr const char* kReduction = "reduction";

/// Reduces over all replicas and keeps this replica's shard. If the shards belong to groups, every group needs the sum
/// over all replicas, so each replica computes all of it: half precision rounds a sum once, at its end.
class ReduceScatterAction final : public Action {
 public:
  ReduceScatterAction(Reduction reduction, std::vector<ShardPair> pairs, bool in_groups, Communicator& all)
      : reduction_(reduction), pairs_(std::move(pairs)), in_groups_(in_groups), all_(all) {}

  Status run() override {
    for (const ShardPair& pair : pairs_) {
      POPRUN_TRY(in_groups_ ? reduce_whole(pair) : scatter(pair));
    }
    return {};
  }

  [[nodiscard]] std::string activity() const override {
    return fmt::format("reduce-scatter of {} tensors", pairs_.size());
  }

 private:
  Status reduce_whole(const ShardPair& pair) {
    filled_.assign(pair.whole.bytes.begin(), pair.whole.bytes.end());
    const Buffer buffer{*element_type_of(pair.whole.type.data), filled_, pair.whole.name};
    POPRUN_TRY(all_.all_reduce(reduction_, std::span(&buffer, 1)));
    ShardPair reduced = pair;
    reduced.whole.bytes = filled_;
    take_shard(reduced);
    return {};
  }

  Status scatter(const ShardPair& pair) {
    std::span<const std::byte> data = pair.whole.bytes;
    if (pair.filled() != data.size()) {
      filled_.assign(pair.filled(), std::byte{0});
      std::ranges::copy(data, filled_.begin());
      data = filled_;
    }
    return all_.reduce_scatter(reduction_, *element_type_of(pair.whole.type.data), data, pair.shard.bytes,
                               pair.whole.name);
  }

  Reduction reduction_;
  std::vector<ShardPair> pairs_;
  bool in_groups_;
  Communicator& all_;
  std::vector<std::byte> filled_;  ///< A tensor, padded to full shards.
};

Attributes attributes_of(Reduction reduction, std::int64_t group) {
  Attributes attributes = group_attributes(group);
  attributes.set(kReduction, std::string{to_text(reduction)});
  return attributes;
}

Status verify(const Graph& graph, const Operation& operation) {
  const std::int64_t group = group_of(operation);
  if (operation.attributes != attributes_of(Reduction::kSum, group) &&
      operation.attributes != attributes_of(Reduction::kMean, group)) {
    return fail(ErrorCode::kUsage, fmt::format("reduce_scatter takes reduction=\"sum\" or \"mean\", and group=SIZE; "
                                               "had: {}",
                                               to_text(operation.attributes)));
  }
  POPRUN_TRY(verify_shards(graph, kKind, operation.inputs, operation.outputs));
  return verify_summable(graph, kKind, operation.inputs);
}

/// Models a reduce-scatter within each group, then a sum of shards over the groups.
DeviceTime time(const Device& device, const ReplicaSystem& system, const Graph& graph, const Operation& operation) {
  const std::int64_t group = sharing_replicas(operation, system);
  DeviceTime time = time_of_scatter(device, graph.bytes(operation.inputs), group, system.ipus_per_replica);
  const DeviceTime over_groups = time_of_all_reduce(device, graph.bytes(operation.outputs), system.replicas / group,
                                                    system.ipus_per_replica * group);
  time.link += over_groups.link;
  time.sync += over_groups.sync;
  return time;
}

void lower(const Operation& operation, proto::Step& step) {
  proto::ReduceScatter& lowered = *step.mutable_reduce_scatter();
  lowered.set_reduction(operation.attributes.text(kReduction));
  add_tensors(operation.inputs, *lowered.mutable_tensors());
  add_tensors(operation.outputs, *lowered.mutable_shards());
  lowered.set_group(static_cast<std::uint32_t>(group_of(operation)));
}

StepTensors tensors(const proto::Step& step) {
  const proto::ReduceScatter& scatter = step.reduce_scatter();
  return {.reads = ids_of(scatter.tensors()),
          .writes = ids_of(scatter.shards()),
          .begins_exchange = ids_of(scatter.tensors()),
          .ends_exchange = ids_of(scatter.shards())};
}

Result<std::unique_ptr<Action>> prepare(const proto::Step& step, Machine& machine) {
  const proto::ReduceScatter& scatter = step.reduce_scatter();
  const std::optional<Reduction> reduction = parse_reduction(scatter.reduction());
  POPRUN_ASSIGN(std::vector<ShardPair> pairs,
                shard_pairs(scatter.tensors(), scatter.shards(), scatter.group(), machine));
  if (!reduction) {
    return fail(ErrorCode::kBug,
                fmt::format("the Program names the reduction '{}', which does not exist", scatter.reduction()));
  }
  const bool in_groups = scatter.group() > 0 && scatter.group() != machine.communicator().size();
  return std::make_unique<ReduceScatterAction>(*reduction, std::move(pairs), in_groups, machine.communicator());
}

}  // namespace

std::vector<MachineOperation> operations() {
  return {{.kind = kKind,
           .step = proto::Step::kReduceScatter,
           .spends = Spends::kWaitingForReplicas,
           .verify = verify,
           .time = time,
           .lower = lower,
           .tensors = tensors,
           .prepare = prepare}};
}

}  // namespace machine::reduce_scatter

Operation ReduceScatter::operation() const {
  return {std::string{machine::reduce_scatter::kKind}, tensors, shards,
          machine::reduce_scatter::attributes_of(reduction, group)};
}

bool ReduceScatter::is(const Operation& operation) {
  return operation.kind == machine::reduce_scatter::kKind;
}

}  // namespace poprun
