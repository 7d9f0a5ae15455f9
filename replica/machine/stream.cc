#include <algorithm>
#include <iterator>
#include <span>

#include <fmt/format.h>

#include "replica/machine/machine.h"
#include "replica/machine/operations.h"

namespace poprun {
namespace machine::stream {
namespace {

constexpr std::string_view kIn = "stream_in";
constexpr std::string_view kOut = "stream_out";
constexpr const char* kFields = "fields";

Status verify_stream(const Operation& operation) {
  const auto found = operation.attributes.values().find("stream");
  if (found == operation.attributes.values().end() || !std::holds_alternative<std::string>(found->second)) {
    return fail(ErrorCode::kUsage, operation.kind + " needs stream=\"NAME\"");
  }
  return {};
}

const std::string& stream_of(const Operation& operation) {
  return operation.attributes.text("stream");
}

template <typename Find>
std::vector<HostTensor> host_tensors(const google::protobuf::RepeatedField<std::uint32_t>& ids, const Find& find) {
  std::vector<HostTensor> tensors;
  std::ranges::transform(ids, std::back_inserter(tensors), find);
  return tensors;
}

DeviceTime time(const Device& device, const ReplicaSystem& /*system*/, const Graph& graph, const Operation& operation) {
  return time_of_host_copy(device, graph.bytes(operation.inputs) + graph.bytes(operation.outputs));
}

class StreamInAction final : public Action {
 public:
  StreamInAction(const proto::StreamIn& step, Machine& machine)
      : stream_(step.stream()),
        ids_(ids_of(step.tensors())),
        tensors_(host_tensors(step.tensors(), [&](std::uint32_t id) { return machine.draft(id); })),
        fields_(ids_of(step.fields())),
        shares_(std::ranges::any_of(ids_, [&](std::uint32_t id) { return machine.is_shared(id); })),
        machine_(machine) {}

  Status run() override {
    if (!shares_) {
      return machine_.host().write(stream_, {machine_.micro_batch(), tensors_, fields_});
    }
    for (std::size_t k = 0; k < ids_.size(); ++k) {  // One by one, because a draft takes memory until it is published.
      const std::uint32_t field = fields_.empty() ? static_cast<std::uint32_t>(k) : fields_[k];
      POPRUN_TRY(machine_.host().write(
          stream_, {machine_.micro_batch(), std::span(tensors_).subspan(k, 1), std::span(&field, 1)}));
      machine_.publish(ids_[k]);
    }
    return {};
  }

  [[nodiscard]] std::string activity() const override { return fmt::format("read of host stream {}", stream_); }

 private:
  const std::string& stream_;
  std::vector<std::uint32_t> ids_;
  std::vector<HostTensor> tensors_;
  std::vector<std::uint32_t> fields_;
  bool shares_;  ///< A tensor's image is shared, so that it is drafted and then published.
  Machine& machine_;
};

Status verify_in(const Graph& /*graph*/, const Operation& operation) {
  if (!operation.inputs.empty() || operation.outputs.empty()) {
    return fail(ErrorCode::kUsage, "stream_in accepts no input and has at least one output");
  }
  POPRUN_TRY(verify_stream(operation));
  const bool has_fields = operation.attributes.has(kFields);
  if (operation.attributes.values().size() != (has_fields ? 2U : 1U) ||
      (has_fields && operation.attributes.integers(kFields).size() != operation.outputs.size())) {
    return fail(ErrorCode::kUsage,
                "stream_in accepts only the attributes stream and fields; fields needs one number per output");
  }
  return {};
}

void lower_in(const Operation& operation, proto::Step& step) {
  step.mutable_stream_in()->set_stream(stream_of(operation));
  add_tensors(operation.outputs, *step.mutable_stream_in()->mutable_tensors());
  const StreamIn value = *StreamIn::from(operation);
  for (const std::int64_t field : value.fields) {
    step.mutable_stream_in()->add_fields(static_cast<std::uint32_t>(field));
  }
}

StepTensors tensors_in(const proto::Step& step) {
  return {.writes = ids_of(step.stream_in().tensors())};
}

Result<std::unique_ptr<Action>> prepare_in(const proto::Step& step, Machine& machine) {
  return std::make_unique<StreamInAction>(step.stream_in(), machine);
}

class StreamOutAction final : public Action {
 public:
  StreamOutAction(const proto::StreamOut& step, Machine& machine)
      : stream_(step.stream()),
        ids_(ids_of(step.tensors())),
        tensors_(host_tensors(step.tensors(), [&](std::uint32_t id) { return machine.tensor(id); })),
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

Status verify_out(const Graph& /*graph*/, const Operation& operation) {
  if (!operation.outputs.empty() || operation.inputs.empty()) {
    return fail(ErrorCode::kUsage, "stream_out needs at least one input and has no output");
  }
  if (operation.attributes.values().size() > 1) {
    return fail(ErrorCode::kUsage, "stream_out accepts only the attribute stream");
  }
  return verify_stream(operation);
}

void lower_out(const Operation& operation, proto::Step& step) {
  step.mutable_stream_out()->set_stream(stream_of(operation));
  add_tensors(operation.inputs, *step.mutable_stream_out()->mutable_tensors());
}

StepTensors tensors_out(const proto::Step& step) {
  return {.reads = ids_of(step.stream_out().tensors())};
}

Result<std::unique_ptr<Action>> prepare_out(const proto::Step& step, Machine& machine) {
  return std::make_unique<StreamOutAction>(step.stream_out(), machine);
}

}  // namespace

std::vector<MachineOperation> operations() {
  return {
      {kIn, proto::Step::kStreamIn, Spends::kWaitingForHost, verify_in, time, lower_in, tensors_in, prepare_in},
      {kOut, proto::Step::kStreamOut, Spends::kWaitingForHost, verify_out, time, lower_out, tensors_out, prepare_out}};
}

}  // namespace machine::stream

Operation StreamIn::operation() const {
  Attributes attributes{{"stream", stream}};
  if (!fields.empty()) {
    attributes.set(machine::stream::kFields, fields);
  }
  return {std::string{machine::stream::kIn}, {}, tensors, std::move(attributes)};
}

std::optional<StreamIn> StreamIn::from(const Operation& operation) {
  if (operation.kind != machine::stream::kIn) {
    return std::nullopt;
  }
  return StreamIn{machine::stream::stream_of(operation), operation.outputs,
                  operation.attributes.has(machine::stream::kFields)
                      ? operation.attributes.integers(machine::stream::kFields)
                      : std::vector<std::int64_t>{}};
}

bool StreamIn::is(const Operation& operation) {
  return operation.kind == machine::stream::kIn;
}

Operation StreamOut::operation() const {
  return {std::string{machine::stream::kOut}, tensors, {}, {{"stream", stream}}};
}

bool StreamOut::is(const Operation& operation) {
  return operation.kind == machine::stream::kOut;
}

}  // namespace poprun
