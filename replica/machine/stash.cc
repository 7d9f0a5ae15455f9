#include <algorithm>

#include <fmt/format.h>

#include "replica/machine/machine.h"
#include "replica/machine/operations.h"

/// "stash" copies a tensor into the entry of this micro-batch, and "restore" copies the entry back. The two differ only
/// in direction, which is the template parameter here.
namespace poprun {
namespace machine::stash {
namespace {

template <typename Kind>
constexpr bool kStashes = std::is_same_v<Kind, Stash>;

template <typename Kind>
constexpr std::string_view kKind = kStashes<Kind> ? "stash" : "restore";

template <typename Kind>
TensorId stash_of(const Operation& operation) {
  return kStashes<Kind> ? operation.outputs[0] : operation.inputs[0];
}

template <typename Kind>
TensorId tensor_of(const Operation& operation) {
  return kStashes<Kind> ? operation.inputs[0] : operation.outputs[0];
}

template <typename Kind>
auto& entry_of(proto::Step& step) {
  if constexpr (kStashes<Kind>) {
    return *step.mutable_stash();
  } else {
    return *step.mutable_restore();
  }
}

template <typename Kind>
const auto& entry_of(const proto::Step& step) {
  if constexpr (kStashes<Kind>) {
    return step.stash();
  } else {
    return step.restore();
  }
}

template <typename Kind>
class EntryAction final : public Action {
 public:
  EntryAction(HostTensor stash, HostTensor tensor, const Machine& machine)
      : stash_(std::move(stash)), tensor_(std::move(tensor)), machine_(machine) {}

  Status run() override {
    const auto length = static_cast<std::size_t>(stash_.type.shape.at(0));
    const std::size_t at = machine_.micro_batch() % length;
    const auto entry = stash_.bytes.subspan(at * tensor_.bytes.size(), tensor_.bytes.size());
    if constexpr (kStashes<Kind>) {
      std::ranges::copy(tensor_.bytes, entry.begin());
    } else {
      std::ranges::copy(entry, tensor_.bytes.begin());
    }
    return {};
  }

  [[nodiscard]] std::string activity() const override { return {}; }

 private:
  HostTensor stash_;
  HostTensor tensor_;
  const Machine& machine_;
};

template <typename Kind>
Status verify(const Graph& graph, const Operation& operation) {
  if (operation.inputs.size() != 1 || operation.outputs.size() != 1 || !operation.attributes.values().empty()) {
    return fail(ErrorCode::kUsage,
                fmt::format("{} {}, and accepts no attributes", kKind<Kind>,
                            kStashes<Kind> ? "reads a tensor, writes a stash" : "reads a stash, writes a tensor"));
  }
  const Tensor& stash = graph.tensor(stash_of<Kind>(operation));
  const Tensor& tensor = graph.tensor(tensor_of<Kind>(operation));
  if (stash.type.shape.empty() || stash.type.shape[0] < 1 ||
      stash.type != stash_type(tensor.type, stash.type.shape[0])) {
    return fail(ErrorCode::kUsage, fmt::format("{}: '{}' {} is not a stash for '{}' {}", kKind<Kind>, stash.name,
                                               to_text(stash.type), tensor.name, to_text(tensor.type)));
  }
  return {};
}

/// Returns the device time of a copy within the tiles, or to or from Streaming Memory.
template <typename Kind>
DeviceTime time(const Device& device, const ReplicaSystem& /*system*/, const Graph& graph, const Operation& operation) {
  const Bytes bytes = graph.tensor(tensor_of<Kind>(operation)).type.bytes();
  if (graph.tensor(stash_of<Kind>(operation)).is_remote()) {
    return time_of_streaming_copy(device, bytes);
  }
  Work work;
  work.memory_traffic = bytes * 2;
  return time_of_work(device, work);
}

template <typename Kind>
void lower(const Operation& operation, proto::Step& step) {
  auto& entry = entry_of<Kind>(step);
  entry.set_stash(index_of(stash_of<Kind>(operation)));
  entry.set_tensor(index_of(tensor_of<Kind>(operation)));
}

template <typename Kind>
StepTensors tensors(const proto::Step& step) {
  const auto& entry = entry_of<Kind>(step);
  return kStashes<Kind> ? StepTensors{.reads = {entry.tensor()}, .writes = {entry.stash()}}
                        : StepTensors{.reads = {entry.stash()}, .writes = {entry.tensor()}};
}

template <typename Kind>
Result<std::unique_ptr<Action>> prepare(const proto::Step& step, Machine& machine) {
  const auto& entry = entry_of<Kind>(step);
  return std::make_unique<EntryAction<Kind>>(machine.tensor(entry.stash()), machine.tensor(entry.tensor()), machine);
}

template <typename Kind>
MachineOperation operation() {
  return {.kind = kKind<Kind>,
          .step = kStashes<Kind> ? proto::Step::kStash : proto::Step::kRestore,
          .spends = Spends::kComputing,
          .verify = verify<Kind>,
          .time = time<Kind>,
          .lower = lower<Kind>,
          .tensors = tensors<Kind>,
          .prepare = prepare<Kind>};
}

}  // namespace

std::vector<MachineOperation> operations() {
  return {operation<Stash>(), operation<Restore>()};
}

}  // namespace machine::stash

Operation Stash::operation() const {
  return {std::string{machine::stash::kKind<Stash>}, {tensor}, {stash}, {}};
}

bool Stash::is(const Operation& operation) {
  return operation.kind == machine::stash::kKind<Stash>;
}

Operation Restore::operation() const {
  return {std::string{machine::stash::kKind<Restore>}, {stash}, {tensor}, {}};
}

bool Restore::is(const Operation& operation) {
  return operation.kind == machine::stash::kKind<Restore>;
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
