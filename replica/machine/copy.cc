#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "replica/machine/machine.h"
#include "replica/machine/operations.h"
#include "replica/machine/step_tensors.h"

namespace poprun {
namespace {

constexpr std::string_view kKind = "copy";

class CopyAction final : public Action {
 public:
  explicit CopyAction(std::vector<std::pair<HostTensor, HostTensor>> pairs)
      : pairs_(std::move(pairs)) {}

  Status run() override {
    for (const auto& [from, to] : pairs_) {
      std::memcpy(to.bytes.data(), from.bytes.data(), from.bytes.size());
    }
    return {};
  }

  [[nodiscard]] std::string activity() const override { return {}; }

 private:
  std::vector<std::pair<HostTensor, HostTensor>> pairs_;
};

Status verify(const Graph& graph, const Operation& operation) {
  if (operation.inputs.empty() || operation.inputs.size() != operation.outputs.size() ||
      !operation.attributes.values().empty()) {
    return fail(ErrorCode::kUsage,
                "copy takes at least one tensor, makes as many, and takes no attribute");
  }
  for (std::size_t k = 0; k < operation.inputs.size(); ++k) {
    const Tensor& from = graph.tensor(operation.inputs[k]);
    const Tensor& to = graph.tensor(operation.outputs[k]);
    if (from.type != to.type) {
      return fail(ErrorCode::kUsage, fmt::format("copy of '{}' {} to '{}' {}", from.name,
                                                 to_text(from.type), to.name, to_text(to.type)));
    }
    const auto written = operation.outputs.begin() + static_cast<std::ptrdiff_t>(k);
    if (std::find(operation.outputs.begin(), written, operation.inputs[k]) != written) {
      return fail(ErrorCode::kUsage,
                  fmt::format("copy of '{}' after the copy that overwrites it", from.name));
    }
  }
  return {};
}

DeviceTime time(const Device& device, const ReplicaSystem& system, const Graph& graph,
                const Operation& operation) {
  std::vector<LinkTransfer> transfers;
  for (std::size_t k = 0; k < operation.inputs.size(); ++k) {
    const Tensor& from = graph.tensor(operation.inputs[k]);
    transfers.push_back({from.ipu, graph.tensor(operation.outputs[k]).ipu, from.type.bytes()});
  }
  return time_of_copy(device, static_cast<std::uint32_t>(system.ipus_per_replica), transfers);
}

void lower(const Operation& operation, proto::Step& step) {
  add_tensors(operation.inputs, *step.mutable_copy()->mutable_from());
  add_tensors(operation.outputs, *step.mutable_copy()->mutable_to());
}

StepTensors tensors(const proto::Step& step) {
  return {.reads = ids_of(step.copy().from()), .writes = ids_of(step.copy().to())};
}

Result<std::unique_ptr<Action>> prepare(const proto::Step& step, Machine& machine) {
  std::vector<std::pair<HostTensor, HostTensor>> pairs;
  for (int k = 0; k < step.copy().from_size(); ++k) {
    const HostTensor from = machine.tensor(step.copy().from(k));
    const HostTensor to = machine.tensor(step.copy().to(k));
    if (from.bytes.size() != to.bytes.size()) {
      return fail(ErrorCode::kBug, fmt::format("the Program copies '{}' to '{}' of another size",
                                               from.name, to.name));
    }
    pairs.emplace_back(from, to);
  }
  return std::make_unique<CopyAction>(std::move(pairs));
}

}  // namespace

Operation Copy::operation() const {
  return {std::string{kKind}, from_tensors, to_tensors, {}};
}

bool Copy::is(const Operation& operation) {
  return operation.kind == kKind;
}

MachineOperation copy_operation() {
  return {.kind = kKind,
          .step = proto::Step::kCopy,
          .spends = Spends::kComputing,
          .verify = verify,
          .time = time,
          .lower = lower,
          .tensors = tensors,
          .prepare = prepare};
}

}  // namespace poprun
