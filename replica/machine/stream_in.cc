#include <fmt/format.h>

#include "replica/machine/machine.h"
#include "replica/machine/operations.h"
#include "replica/machine/stream.h"

namespace poprun {
namespace machine::stream_in {
namespace {

constexpr std::string_view kKind = "stream_in";
constexpr const char* kFields = "fields";

class StreamInAction final : public Action {
 public:
  StreamInAction(const proto::StreamIn& step, Machine& machine)
      : stream_(step.stream()),
        tensors_(host_tensors(step.tensors(), machine)),
        fields_(ids_of(step.fields())),
        machine_(machine) {}

  Status run() override { return machine_.host().write(stream_, {machine_.micro_batch(), tensors_, fields_}); }

  [[nodiscard]] std::string activity() const override { return fmt::format("read of host stream {}", stream_); }

 private:
  const std::string& stream_;
  std::vector<HostTensor> tensors_;
  std::vector<std::uint32_t> fields_;
  Machine& machine_;
};

Status verify(const Graph& /*graph*/, const Operation& operation) {
  if (!operation.inputs.empty() || operation.outputs.empty()) {
    return fail(ErrorCode::kUsage, "stream_in takes no input and has at least one output");
  }
  POPRUN_TRY(verify_stream(operation));
  const bool has_fields = operation.attributes.has(kFields);
  if (operation.attributes.values().size() != (has_fields ? 2U : 1U) ||
      (has_fields && operation.attributes.integers(kFields).size() != operation.outputs.size())) {
    return fail(ErrorCode::kUsage, "stream_in takes stream and fields, a number for each output, and nothing else");
  }
  return {};
}

DeviceTime time(const Device& device, const ReplicaSystem& /*system*/, const Graph& graph, const Operation& operation) {
  return time_of_host_copy(device, graph.bytes(operation.outputs));
}

void lower(const Operation& operation, proto::Step& step) {
  step.mutable_stream_in()->set_stream(stream_of(operation));
  add_tensors(operation.outputs, *step.mutable_stream_in()->mutable_tensors());
  const StreamIn value = *StreamIn::from(operation);
  for (const std::int64_t field : value.fields) {
    step.mutable_stream_in()->add_fields(static_cast<std::uint32_t>(field));
  }
}

StepTensors tensors(const proto::Step& step) {
  return {.writes = ids_of(step.stream_in().tensors())};
}

Result<std::unique_ptr<Action>> prepare(const proto::Step& step, Machine& machine) {
  return std::make_unique<StreamInAction>(step.stream_in(), machine);
}

}  // namespace

std::vector<MachineOperation> operations() {
  return {{.kind = kKind,
           .step = proto::Step::kStreamIn,
           .spends = Spends::kWaitingForHost,
           .verify = verify,
           .time = time,
           .lower = lower,
           .tensors = tensors,
           .prepare = prepare}};
}

}  // namespace machine::stream_in

Operation StreamIn::operation() const {
  Attributes attributes{{"stream", stream}};
  if (!fields.empty()) {
    attributes.set(machine::stream_in::kFields, fields);
  }
  return {std::string{machine::stream_in::kKind}, {}, tensors, std::move(attributes)};
}

std::optional<StreamIn> StreamIn::from(const Operation& operation) {
  if (operation.kind != machine::stream_in::kKind) {
    return std::nullopt;
  }
  return StreamIn{stream_of(operation), operation.outputs,
                  operation.attributes.has(machine::stream_in::kFields)
                      ? operation.attributes.integers(machine::stream_in::kFields)
                      : std::vector<std::int64_t>{}};
}

bool StreamIn::is(const Operation& operation) {
  return operation.kind == machine::stream_in::kKind;
}

}  // namespace poprun
