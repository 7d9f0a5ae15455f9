#include <algorithm>

#include "replica/machine/stash_entry.h"

namespace poprun {
namespace machine::stash {
namespace {

constexpr std::string_view kKind = "stash";

class StashAction final : public Action {
 public:
  explicit StashAction(const StashEntry& entry) : entry_(entry) {}

  Status run() override {
    std::ranges::copy(entry_.tensor(), entry_.entry().begin());
    return {};
  }

  [[nodiscard]] std::string activity() const override { return {}; }

 private:
  StashEntry entry_;
};

Status verify(const Graph& graph, const Operation& operation) {
  if (operation.inputs.size() != 1 || operation.outputs.size() != 1 ||
      !operation.attributes.values().empty()) {
    return fail(ErrorCode::kUsage, "stash takes a tensor, writes a stash, and takes no attribute");
  }
  return verify_stash(graph, kKind, operation.outputs[0], operation.inputs[0]);
}

DeviceTime time(const Device& device, const ReplicaSystem& /*system*/, const Graph& graph,
                const Operation& operation) {
  return time_of_entry(device, graph, operation.outputs[0], operation.inputs[0]);
}

void lower(const Operation& operation, proto::Step& step) {
  step.mutable_stash()->set_stash(index_of(operation.outputs[0]));
  step.mutable_stash()->set_tensor(index_of(operation.inputs[0]));
}

StepTensors tensors(const proto::Step& step) {
  return {.reads = {step.stash().tensor()}, .writes = {step.stash().stash()}};
}

Result<std::unique_ptr<Action>> prepare(const proto::Step& step, Machine& machine) {
  return std::make_unique<StashAction>(
      StashEntry(step.stash().stash(), step.stash().tensor(), machine));
}

}  // namespace

MachineOperation operation() {
  return {.kind = kKind,
          .step = proto::Step::kStash,
          .spends = Spends::kComputing,
          .verify = verify,
          .time = time,
          .lower = lower,
          .tensors = tensors,
          .prepare = prepare};
}

}  // namespace machine::stash

Operation Stash::operation() const {
  return {std::string{machine::stash::kKind}, {tensor}, {stash}, {}};
}

bool Stash::is(const Operation& operation) {
  return operation.kind == machine::stash::kKind;
}

TensorType stash_type(const TensorType& type, std::int64_t length) {
  TensorType all{type.data, {length}, Layout::kRowMajor};
  all.shape.insert(all.shape.end(), type.shape.begin(), type.shape.end());
  return all;
}

TensorType entry_type(const TensorType& stash) {
  POPRUN_CHECK(!stash.shape.empty());
  return {stash.data, {stash.shape.begin() + 1, stash.shape.end()}, Layout::kRowMajor};
}

bool keeps_other_entries(const Graph& graph, const Operation& operation, TensorId output) {
  return Stash::is(operation) || (Copy::is(operation) && graph.tensor(output).is_remote());
}

}  // namespace poprun
