#include <fmt/format.h>

#include "replica/machine/machine.h"
#include "replica/machine/operations.h"
#include "replica/machine/stream.h"

namespace poprun {
namespace machine::stream_out {
namespace {

constexpr std::string_view kKind = "stream_out";

class StreamOutAction final : public Action {
 public:
  StreamOutAction(const proto::StreamOut& step, Machine& machine)
      : stream_(step.stream()),
        ids_(ids_of(step.tensors())),
        tensors_(host_tensors(step.tensors(), machine)),
        machine_(machine) {}

  Status run() override {
    POPRUN_TRY(machine_.check_finite(ids_, "read by the host"));
    return machine_.host().read(stream_, {machine_.micro_batch(), tensors_});
  }

  [[nodiscard]] std::string activity() const override { return fmt::format("write to host stream {}", stream_); }

 private:
  const std::string& stream_;
  std::vector<std::uint32_t> ids_;
  std::vector<HostTensor> tensors_;
  Machine& machine_;
};

Status verify(const Graph& /*graph*/, const Operation& operation) {
  if (!operation.outputs.empty() || operation.inputs.empty()) {
    return fail(ErrorCode::kUsage, "stream_out takes at least one input and has no output");
  }
  if (operation.attributes.values().size() > 1) {
    return fail(ErrorCode::kUsage, "stream_out takes stream and nothing else");
  }
  return verify_stream(operation);
}

DeviceTime time(const Device& device, const ReplicaSystem& /*system*/, const Graph& graph, const Operation& operation) {
  return time_of_host_copy(device, graph.bytes(operation.inputs));
}

void lower(const Operation& operation, proto::Step& step) {
  step.mutable_stream_out()->set_stream(stream_of(operation));
  add_tensors(operation.inputs, *step.mutable_stream_out()->mutable_tensors());
}

StepTensors tensors(const proto::Step& step) {
  return {.reads = ids_of(step.stream_out().tensors())};
}

Result<std::unique_ptr<Action>> prepare(const proto::Step& step, Machine& machine) {
  return std::make_unique<StreamOutAction>(step.stream_out(), machine);
}

}  // namespace

std::vector<MachineOperation> operations() {
  return {{.kind = kKind,
           .step = proto::Step::kStreamOut,
           .spends = Spends::kWaitingForHost,
           .verify = verify,
           .time = time,
           .lower = lower,
           .tensors = tensors,
           .prepare = prepare}};
}

}  // namespace machine::stream_out

Operation StreamOut::operation() const {
  return {std::string{machine::stream_out::kKind}, tensors, {}, {{"stream", stream}}};
}

bool StreamOut::is(const Operation& operation) {
  return operation.kind == machine::stream_out::kKind;
}

}  // namespace poprun
