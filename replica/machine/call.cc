#include <fmt/format.h>

#include "replica/machine/machine.h"

namespace poprun {
namespace machine::call {
namespace {

class CallAction final : public Action {
 public:
  CallAction(const proto::Call& step, Machine& machine)
      : step_(step), salts_(step.salts().begin(), step.salts().end()), machine_(machine) {}

  Status run() override { return machine_.call(step_.function(), step_.micro_batch(), step_.entry(), salts_); }

  [[nodiscard]] std::string activity() const override { return {}; }

 private:
  const proto::Call& step_;
  std::vector<std::string> salts_;
  Machine& machine_;
};

Status verify(const Graph& graph, const Operation& operation) {
  const std::optional<Call> call = Call::from(operation);
  if (!call || !operation.inputs.empty() || !operation.outputs.empty() || call->micro_batch < 0 || call->entry < 0 ||
      operation.attributes != call->operation().attributes || find_function(graph, call->function) == nullptr) {
    return fail(ErrorCode::kUsage,
                fmt::format("call accepts function=\"NAME\" (a function of the graph), micro_batch=NUMBER, optionally "
                            "entry=NUMBER (both >= 0), and salt0=\"NAME\", salt1=\"NAME\" ... as needed; given: {}",
                            to_text(operation.attributes)));
  }
  return {};
}

/// Returns zero for the step itself: the timeline walks the called function.
DeviceTime time(const Device& /*device*/, const ReplicaSystem& /*system*/, const Graph& /*graph*/,
                const Operation& /*operation*/) {
  return {};
}

void lower(const Operation& operation, proto::Step& step) {
  const Call value = *Call::from(operation);
  step.mutable_call()->set_function(value.function);
  step.mutable_call()->set_micro_batch(static_cast<std::uint32_t>(value.micro_batch));
  step.mutable_call()->set_entry(static_cast<std::uint32_t>(value.entry));
  step.mutable_call()->mutable_salts()->Assign(value.salts.begin(), value.salts.end());
}

StepTensors tensors(const proto::Step& /*step*/) {
  return {};
}

Result<std::unique_ptr<Action>> prepare(const proto::Step& step, Machine& machine) {
  return std::make_unique<CallAction>(step.call(), machine);
}

}  // namespace

std::vector<MachineOperation> operations() {
  return {{Call::kKind, proto::Step::kCall, Spends::kNothing, verify, time, lower, tensors, prepare}};
}

}  // namespace machine::call

}  // namespace poprun
