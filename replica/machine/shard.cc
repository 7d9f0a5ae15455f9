#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/machine/exchange.h"
#include "replica/machine/machine.h"
#include "replica/machine/operations.h"

/// Operations on shards. A shard is one replica's part of a tensor. The operations take a shard from the replica's own
/// tensor or from the sum of all replicas' tensors, or assemble full tensors from shards.
namespace poprun {
namespace machine::shard {
namespace {

constexpr std::string_view kShard = "shard";
constexpr std::string_view kAllGather = "all_gather";
constexpr std::string_view kReduceScatter = "reduce_scatter";

/// Checks that each of `shards` is a shard of its tensor.
Status verify_shards(const Graph& graph, std::string_view kind, const std::vector<TensorId>& tensors,
                     const std::vector<TensorId>& shards) {
  if (tensors.empty() || tensors.size() != shards.size()) {
    return fail(ErrorCode::kUsage, fmt::format("{} needs at least one input and as many outputs", kind));
  }
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    const Tensor& whole = graph.tensor(tensors[k]);
    const Tensor& shard = graph.tensor(shards[k]);
    if (shard.shard_of != whole.type || shard.type.data != whole.type.data || shard.type.shape.size() != 1 ||
        shard.ipu != whole.ipu) {
      return fail(ErrorCode::kUsage, fmt::format("{}: '{}' {} is not a shard of '{}' {}", kind, shard.name,
                                                 to_text(shard.type), whole.name, to_text(whole.type)));
    }
  }
  return {};
}

/// A tensor and this replica's shard.
struct ShardPair {
  HostTensor whole;
  HostTensor shard;
  std::size_t count = 0;  ///< Number of shards of the tensor.
  std::size_t self = 0;   ///< Index of this replica's shard.

  /// Returns the size of all shards, including the padding of the last ones.
  [[nodiscard]] std::size_t filled() const { return shard.bytes.size() * count; }
};

/// Returns tensors with their shards. Errors: kBug if the shards do not form the tensor.
Result<std::vector<ShardPair>> shard_pairs(const google::protobuf::RepeatedField<std::uint32_t>& tensors,
                                           const google::protobuf::RepeatedField<std::uint32_t>& shards,
                                           std::uint32_t group, Machine& machine) {
  const Communicator& all = machine.communicator();
  const std::size_t count = group > 0 ? group : all.size();
  std::vector<ShardPair> pairs;
  for (int k = 0; k < tensors.size(); ++k) {
    ShardPair pair{machine.tensor(tensors[k]), machine.tensor(shards[k]), count, index_of(all.self()) % count};
    if (pair.shard.type != shard_type(pair.whole.type, static_cast<std::int64_t>(count))) {
      return fail(ErrorCode::kBug,
                  fmt::format("{} shards like '{}' do not make up '{}'", count, pair.shard.name, pair.whole.name));
    }
    pairs.push_back(pair);
  }
  return pairs;
}

/// Returns the tensors of a step that both begins and ends an exchange.
StepTensors exchanged(std::vector<std::uint32_t> reads, std::vector<std::uint32_t> writes) {
  return {.reads = reads, .writes = writes, .begins_exchange = std::move(reads), .ends_exchange = std::move(writes)};
}

/// Copies the replica's part of `whole` to its shard, padded with zeros.
void take_shard(const ShardPair& pair) {
  const std::size_t size = pair.shard.bytes.size();
  const std::size_t begin = std::min(pair.self * size, pair.whole.bytes.size());
  const std::size_t count = std::min(size, pair.whole.bytes.size() - begin);
  std::memcpy(pair.shard.bytes.data(), pair.whole.bytes.data() + begin, count);
  std::memset(pair.shard.bytes.data() + count, 0, size - count);
}

class ShardAction final : public Action {
 public:
  explicit ShardAction(std::vector<ShardPair> pairs) : pairs_(std::move(pairs)) {}

  Status run() override {
    std::ranges::for_each(pairs_, take_shard);
    return {};
  }

  [[nodiscard]] std::string activity() const override { return {}; }

 private:
  std::vector<ShardPair> pairs_;
};

Status verify_shard(const Graph& graph, const Operation& operation) {
  if (operation.attributes != group_attributes(group_of(operation))) {
    return fail(ErrorCode::kUsage, fmt::format("shard accepts group=SIZE; given: {}", to_text(operation.attributes)));
  }
  return verify_shards(graph, kShard, operation.inputs, operation.outputs);
}

void lower_shard(const Operation& operation, proto::Step& step) {
  add_tensors(operation.inputs, *step.mutable_shard()->mutable_tensors());
  add_tensors(operation.outputs, *step.mutable_shard()->mutable_shards());
  step.mutable_shard()->set_group(static_cast<std::uint32_t>(group_of(operation)));
}

StepTensors tensors_shard(const proto::Step& step) {
  return {.reads = ids_of(step.shard().tensors()), .writes = ids_of(step.shard().shards())};
}

Result<std::unique_ptr<Action>> prepare_shard(const proto::Step& step, Machine& machine) {
  const proto::Shard& shard = step.shard();
  POPRUN_ASSIGN(std::vector<ShardPair> pairs, shard_pairs(shard.tensors(), shard.shards(), shard.group(), machine));
  return std::make_unique<ShardAction>(std::move(pairs));
}

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

  [[nodiscard]] std::string activity() const override {
    return fmt::format("all-gather of {}", counted(pairs_.size(), "tensor"));
  }

 private:
  std::vector<ShardPair> pairs_;
  Communicator& group_;
  std::vector<std::byte> filled_;  ///< A tensor, padded to full shards.
};

Status verify_gather(const Graph& graph, const Operation& operation) {
  if (operation.attributes != group_attributes(group_of(operation))) {
    return fail(ErrorCode::kUsage,
                fmt::format("all_gather accepts group=SIZE; given: {}", to_text(operation.attributes)));
  }
  return verify_shards(graph, kAllGather, operation.outputs, operation.inputs);
}

DeviceTime time_gather(const Device& device, const ReplicaSystem& system, const Graph& graph,
                       const Operation& operation) {
  return time_of_gather(device, graph.bytes(operation.outputs), sharing_replicas(operation, system),
                        system.ipus_per_replica);
}

void lower_gather(const Operation& operation, proto::Step& step) {
  add_tensors(operation.inputs, *step.mutable_all_gather()->mutable_shards());
  add_tensors(operation.outputs, *step.mutable_all_gather()->mutable_tensors());
  step.mutable_all_gather()->set_group(static_cast<std::uint32_t>(group_of(operation)));
}

StepTensors tensors_gather(const proto::Step& step) {
  const proto::AllGather& gather = step.all_gather();
  return exchanged(ids_of(gather.shards()), ids_of(gather.tensors()));
}

Result<std::unique_ptr<Action>> prepare_gather(const proto::Step& step, Machine& machine) {
  const proto::AllGather& gather = step.all_gather();
  POPRUN_ASSIGN(std::vector<ShardPair> pairs, shard_pairs(gather.tensors(), gather.shards(), gather.group(), machine));
  POPRUN_ASSIGN(Communicator * group, machine.group(gather.group()));
  return std::make_unique<AllGatherAction>(std::move(pairs), *group);
}

constexpr const char* kReduction = "reduction";

/// Reduces over all replicas and keeps this replica's shard. If the shards belong to groups, every group needs the sum
/// over all replicas, so each replica computes the full sum. In half precision, the sum is rounded once, at the end.
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
    return fmt::format("reduce-scatter of {}", counted(pairs_.size(), "tensor"));
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

Status verify_scatter(const Graph& graph, const Operation& operation) {
  const std::int64_t group = group_of(operation);
  if (operation.attributes != attributes_of(Reduction::kSum, group) &&
      operation.attributes != attributes_of(Reduction::kMean, group)) {
    return fail(ErrorCode::kUsage,
                fmt::format("reduce_scatter accepts reduction=\"sum\" or \"mean\", and group=SIZE; given: {}",
                            to_text(operation.attributes)));
  }
  POPRUN_TRY(verify_shards(graph, kReduceScatter, operation.inputs, operation.outputs));
  return verify_summable(graph, kReduceScatter, operation.inputs);
}

/// Models a reduce-scatter within each group, then a sum of shards over the groups.
DeviceTime time_scatter(const Device& device, const ReplicaSystem& system, const Graph& graph,
                        const Operation& operation) {
  const std::int64_t group = sharing_replicas(operation, system);
  DeviceTime time = time_of_scatter(device, graph.bytes(operation.inputs), group, system.ipus_per_replica);
  const DeviceTime over_groups = time_of_all_reduce(device, graph.bytes(operation.outputs), system.replicas / group,
                                                    system.ipus_per_replica * group);
  time.link += over_groups.link;
  time.sync += over_groups.sync;
  return time;
}

void lower_scatter(const Operation& operation, proto::Step& step) {
  proto::ReduceScatter& lowered = *step.mutable_reduce_scatter();
  lowered.set_reduction(operation.attributes.text(kReduction));
  add_tensors(operation.inputs, *lowered.mutable_tensors());
  add_tensors(operation.outputs, *lowered.mutable_shards());
  lowered.set_group(static_cast<std::uint32_t>(group_of(operation)));
}

StepTensors tensors_scatter(const proto::Step& step) {
  const proto::ReduceScatter& scatter = step.reduce_scatter();
  return exchanged(ids_of(scatter.tensors()), ids_of(scatter.shards()));
}

Result<std::unique_ptr<Action>> prepare_scatter(const proto::Step& step, Machine& machine) {
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
  return {{kShard, proto::Step::kShard, Spends::kComputing, verify_shard, time_of_copy_within_tiles, lower_shard,
           tensors_shard, prepare_shard},
          {kAllGather, proto::Step::kAllGather, Spends::kWaitingForReplicas, verify_gather, time_gather, lower_gather,
           tensors_gather, prepare_gather},
          {kReduceScatter, proto::Step::kReduceScatter, Spends::kWaitingForReplicas, verify_scatter, time_scatter,
           lower_scatter, tensors_scatter, prepare_scatter}};
}

}  // namespace machine::shard

Operation Shard::operation() const {
  return {std::string{machine::shard::kShard}, tensors, shards, group_attributes(group)};
}

bool Shard::is(const Operation& operation) {
  return operation.kind == machine::shard::kShard;
}

TensorType shard_type(const TensorType& whole, std::int64_t count) {
  return {whole.data, {ceil_div(whole.elements(), count)}, Layout::kRowMajor};
}

Operation AllGather::operation() const {
  return {std::string{machine::shard::kAllGather}, shards, tensors, group_attributes(group)};
}

bool AllGather::is(const Operation& operation) {
  return operation.kind == machine::shard::kAllGather;
}

Operation ReduceScatter::operation() const {
  return {std::string{machine::shard::kReduceScatter}, tensors, shards,
          machine::shard::attributes_of(reduction, group)};
}

bool ReduceScatter::is(const Operation& operation) {
  return operation.kind == machine::shard::kReduceScatter;
}

}  // namespace poprun
