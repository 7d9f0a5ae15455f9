#include <fmt/format.h>

#include "replica/machine/machine.h"
#include "replica/machine/operations.h"
#include "replica/machine/step_tensors.h"

namespace poprun {
namespace machine::await_all_reduces {
namespace {

constexpr std::string_view kKind = "await_all_reduces";

class AwaitAction final : public Action {
 public:
  AwaitAction(int tensors, Communicator& communicator) : tensors_(tensors), communicator_(communicator) {}

  Status run() override { return communicator_.await_all_reduces(); }

  [[nodiscard]] std::string activity() const override {
    return fmt::format("all-reduce of {} tensors in the background", tensors_);
  }

 private:
  int tensors_;
  Communicator& communicator_;
};

Status verify(const Graph& /*graph*/, const Operation& operation) {
  if (operation.inputs.empty() || operation.inputs != operation.outputs || !operation.attributes.values().empty()) {
    return fail(ErrorCode::kUsage,
                "await_all_reduces waits for at least one tensor, each in place, and takes no attributes");
  }
  return {};
}

/// Takes no time of its own: the timeline computes how much of the reductions is left.
DeviceTime time(const Device& /*device*/, const ReplicaSystem& /*system*/, const Graph& /*graph*/,
                const Operation& /*operation*/) {
  return {};
}

void lower(const Operation& operation, proto::Step& step) {
  add_tensors(operation.inputs, *step.mutable_await_all_reduces()->mutable_tensors());
  step.set_links(proto::LINKS_AWAITED);
}

StepTensors tensors(const proto::Step& step) {
  const std::vector<std::uint32_t> all = ids_of(step.await_all_reduces().tensors());
  return {.reads = all, .writes = all, .begins_exchange = {}, .ends_exchange = all};
}

Result<std::unique_ptr<Action>> prepare(const proto::Step& step, Machine& machine) {
  return std::make_unique<AwaitAction>(step.await_all_reduces().tensors_size(), machine.communicator());
}

}  // namespace

std::vector<MachineOperation> operations() {
  return {{.kind = kKind,
           .step = proto::Step::kAwaitAllReduces,
           .spends = Spends::kWaitingForReplicas,
           .verify = verify,
           .time = time,
           .lower = lower,
           .tensors = tensors,
           .prepare = prepare}};
}

}  // namespace machine::await_all_reduces

Operation AwaitAllReduces::operation() const {
  return {std::string{machine::await_all_reduces::kKind}, tensors, tensors, {}};
}

bool AwaitAllReduces::is(const Operation& operation) {
  return operation.kind == machine::await_all_reduces::kKind;
}

}  // namespace poprun
