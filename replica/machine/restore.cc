#include <algorithm>

#include "replica/machine/stash_entry.h"

namespace poprun {
namespace machine::restore {
namespace {

constexpr std::string_view kKind = "restore";

class RestoreAction final : public Action {
 public:
  explicit RestoreAction(const StashEntry& entry) : entry_(entry) {}

  Status run() override {
    std::ranges::copy(entry_.entry(), entry_.tensor().begin());
    return {};
  }

  [[nodiscard]] std::string activity() const override { return {}; }

 private:
  StashEntry entry_;
};

Status verify(const Graph& graph, const Operation& operation) {
  if (operation.inputs.size() != 1 || operation.outputs.size() != 1 ||
      !operation.attributes.values().empty()) {
    return fail(ErrorCode::kUsage, "restore takes a stash, makes a tensor, and takes no attribute");
  }
  return verify_stash(graph, kKind, operation.inputs[0], operation.outputs[0]);
}

DeviceTime time(const Device& device, const ReplicaSystem& /*system*/, const Graph& graph,
                const Operation& operation) {
  return time_of_entry(device, graph, operation.inputs[0], operation.outputs[0]);
}

void lower(const Operation& operation, proto::Step& step) {
  step.mutable_restore()->set_stash(index_of(operation.inputs[0]));
  step.mutable_restore()->set_tensor(index_of(operation.outputs[0]));
}

StepTensors tensors(const proto::Step& step) {
  return {.reads = {step.restore().stash()}, .writes = {step.restore().tensor()}};
}

Result<std::unique_ptr<Action>> prepare(const proto::Step& step, Machine& machine) {
  return std::make_unique<RestoreAction>(
      StashEntry(step.restore().stash(), step.restore().tensor(), machine));
}

}  // namespace

MachineOperation operation() {
  return {.kind = kKind,
          .step = proto::Step::kRestore,
          .spends = Spends::kComputing,
          .verify = verify,
          .time = time,
          .lower = lower,
          .tensors = tensors,
          .prepare = prepare};
}

}  // namespace machine::restore

Operation Restore::operation() const {
  return {std::string{machine::restore::kKind}, {stash}, {tensor}, {}};
}

bool Restore::is(const Operation& operation) {
  return operation.kind == machine::restore::kKind;
}

}  // namespace poprun
