#include "replica/machine/shards.h"

namespace poprun {
namespace machine::shard {
namespace {

constexpr std::string_view kKind = "shard";

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

Status verify(const Graph& graph, const Operation& operation) {
  if (operation.attributes != group_attributes(group_of(operation))) {
    return fail(ErrorCode::kUsage, fmt::format("shard takes group=SIZE; had: {}", to_text(operation.attributes)));
  }
  return verify_shards(graph, kKind, operation.inputs, operation.outputs);
}

/// Models a copy within the tiles.
DeviceTime time(const Device& device, const ReplicaSystem& /*system*/, const Graph& graph, const Operation& operation) {
  Work work;
  work.memory_traffic = graph.bytes(operation.outputs) * 2;
  return time_of_work(device, work);
}

void lower(const Operation& operation, proto::Step& step) {
  add_tensors(operation.inputs, *step.mutable_shard()->mutable_tensors());
  add_tensors(operation.outputs, *step.mutable_shard()->mutable_shards());
  step.mutable_shard()->set_group(static_cast<std::uint32_t>(group_of(operation)));
}

StepTensors tensors(const proto::Step& step) {
  return {.reads = ids_of(step.shard().tensors()), .writes = ids_of(step.shard().shards())};
}

Result<std::unique_ptr<Action>> prepare(const proto::Step& step, Machine& machine) {
  const proto::Shard& shard = step.shard();
  POPRUN_ASSIGN(std::vector<ShardPair> pairs, shard_pairs(shard.tensors(), shard.shards(), shard.group(), machine));
  return std::make_unique<ShardAction>(std::move(pairs));
}

}  // namespace

std::vector<MachineOperation> operations() {
  return {{.kind = kKind,
           .step = proto::Step::kShard,
           .spends = Spends::kComputing,
           .verify = verify,
           .time = time,
           .lower = lower,
           .tensors = tensors,
           .prepare = prepare}};
}

}  // namespace machine::shard

Operation Shard::operation() const {
  return {std::string{machine::shard::kKind}, tensors, shards, group_attributes(group)};
}

bool Shard::is(const Operation& operation) {
  return operation.kind == machine::shard::kKind;
}

TensorType shard_type(const TensorType& whole, std::int64_t count) {
  return {whole.data, {ceil_div(whole.elements(), count)}, Layout::kRowMajor};
}

}  // namespace poprun
