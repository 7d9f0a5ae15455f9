#include <fmt/format.h>

#include "replica/machine/machine.h"
#include "replica/machine/operations.h"
#include "replica/machine/stream.h"

namespace poprun {
namespace {

constexpr std::string_view kKind = "stream_in";

class StreamInAction final : public Action {
 public:
  StreamInAction(const proto::StreamIn& step, Machine& machine)
      : stream_(step.stream()),
        tensors_(host_tensors(step.tensors(), machine)),
        host_(machine.host()) {}

  Status run() override { return host_.write(stream_, tensors_); }

  [[nodiscard]] std::string activity() const override {
    return fmt::format("read of host stream {}", stream_);
  }

 private:
  const std::string& stream_;
  std::vector<HostTensor> tensors_;
  HostIo& host_;
};

Status verify(const Graph& /*graph*/, const Operation& operation) {
  if (!operation.inputs.empty() || operation.outputs.empty()) {
    return fail(ErrorCode::kUsage, "stream_in takes no input and has at least one output");
  }
  return verify_stream(operation);
}

DeviceTime time(const Device& device, const ReplicaSystem& /*system*/, const Graph& graph,
                const Operation& operation) {
  return time_of_host_copy(device, graph.bytes(operation.outputs));
}

void lower(const Operation& operation, proto::Step& step) {
  step.mutable_stream_in()->set_stream(stream_of(operation));
  add_tensors(operation.outputs, *step.mutable_stream_in()->mutable_tensors());
}

StepTensors tensors(const proto::Step& step) {
  return {.writes = ids_of(step.stream_in().tensors())};
}

Result<std::unique_ptr<Action>> prepare(const proto::Step& step, Machine& machine) {
  return std::make_unique<StreamInAction>(step.stream_in(), machine);
}

}  // namespace

Operation StreamIn::operation() const {
  return {std::string{kKind}, {}, tensors, {{"stream", stream}}};
}

bool StreamIn::is(const Operation& operation) {
  return operation.kind == kKind;
}

MachineOperation stream_in_operation() {
  return {.kind = kKind,
          .step = proto::Step::kStreamIn,
          .verify = verify,
          .time = time,
          .lower = lower,
          .tensors = tensors,
          .prepare = prepare};
}

}  // namespace poprun
