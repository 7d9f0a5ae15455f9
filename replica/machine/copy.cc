#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "replica/machine/machine.h"
#include "replica/machine/operations.h"

namespace poprun {
namespace machine::copy {
namespace {

constexpr std::string_view kKind = "copy";

constexpr const char* kFromEntries = "from_entries";
constexpr const char* kToEntries = "to_entries";

struct End {
  std::uint32_t tensor = 0;
  std::int32_t entry = -1;  ///< Entry of a remote buffer; -1: the full tensor.
};

struct Pair {
  End from;
  End to;
  std::size_t size = 0;
};

class CopyAction final : public Action {
 public:
  CopyAction(std::vector<Pair> pairs, const Machine& machine) : pairs_(std::move(pairs)), machine_(machine) {}

  Status run() override {
    for (const Pair& pair : pairs_) {
      std::byte* const to = place(pair.to, pair.size);
      const std::byte* const from = place(pair.from, pair.size);
      if (to != from) {
        std::memcpy(to, from, pair.size);
      }
    }
    return {};
  }

  [[nodiscard]] std::string activity() const override { return {}; }

 private:
  [[nodiscard]] std::byte* place(const End& end, std::size_t size) const {
    const std::size_t entry = end.entry < 0 ? 0 : static_cast<std::size_t>(end.entry) + machine_.entry();
    return machine_.tensor(end.tensor).bytes.subspan(entry * size, size).data();
  }

  std::vector<Pair> pairs_;
  const Machine& machine_;
};

/// Returns the entries listed by an attribute, which is absent if all tensors are copied in full.
std::vector<std::int64_t> entries_of(const Operation& operation, const std::string& attribute) {
  return operation.attributes.has(attribute) ? operation.attributes.integers(attribute) : std::vector<std::int64_t>{};
}

/// Returns the type of the part of a tensor that a copy reads or writes. Errors: kUsage if the entry does not exist.
Result<TensorType> copied_type(const Tensor& tensor, std::int64_t entry) {
  if (tensor.is_remote() != (entry != Copy::kWhole)) {
    return fail(ErrorCode::kUsage, fmt::format("copy of '{}': {}", tensor.name,
                                               tensor.is_remote() ? "a remote buffer is copied entry by entry"
                                                                  : "only remote buffers have entries"));
  }
  if (entry == Copy::kWhole) {
    return tensor.type;
  }
  if (tensor.type.shape.empty() || entry < 0 || entry >= tensor.type.shape[0]) {
    return fail(ErrorCode::kUsage, fmt::format("copy of entry {} of '{}' {}: the entry does not exist", entry,
                                               tensor.name, to_text(tensor.type)));
  }
  return entry_type(tensor.type);
}

bool are_alike(const TensorType& a, const TensorType& b) {
  return a.data == b.data && a.shape == b.shape;
}

Status verify_attributes(const Operation& operation) {
  for (const auto& [name, value] : operation.attributes.values()) {
    const auto* entries = std::get_if<std::vector<std::int64_t>>(&value);
    if ((name != kFromEntries && name != kToEntries) || entries == nullptr ||
        entries->size() != operation.inputs.size()) {
      return fail(ErrorCode::kUsage,
                  fmt::format("copy accepts from_entries and to_entries, with one number per tensor; given: {}",
                              to_text(operation.attributes)));
    }
  }
  return {};
}

Status verify(const Graph& graph, const Operation& operation) {
  if (operation.inputs.empty() || operation.inputs.size() != operation.outputs.size()) {
    return fail(ErrorCode::kUsage, "copy needs at least one input and as many outputs");
  }
  POPRUN_TRY(verify_attributes(operation));
  const Copy copy = *Copy::from(operation);
  for (std::size_t k = 0; k < operation.inputs.size(); ++k) {
    const Tensor& from = graph.tensor(operation.inputs[k]);
    const Tensor& to = graph.tensor(operation.outputs[k]);
    POPRUN_ASSIGN(const TensorType read, copied_type(from, copy.from_entry(k)));
    POPRUN_ASSIGN(const TensorType written, copied_type(to, copy.to_entry(k)));
    const bool entry = from.is_remote() || to.is_remote();
    if (entry ? !are_alike(read, written) : read != written) {
      return fail(ErrorCode::kUsage, fmt::format("copy of '{}' {} to '{}' {}: the types differ", from.name,
                                                 to_text(from.type), to.name, to_text(to.type)));
    }
    if (entry && from.ipu != to.ipu) {
      return fail(
          ErrorCode::kUsage,
          fmt::format("copy of '{}' on IPU {} to '{}' on IPU {}: an IPU can access only its own Streaming Memory",
                      from.name, from.ipu, to.name, to.ipu));
    }
    const auto overwritten = operation.outputs.begin() + static_cast<std::ptrdiff_t>(k);
    if (std::find(operation.outputs.begin(), overwritten, operation.inputs[k]) != overwritten) {
      return fail(ErrorCode::kUsage,
                  fmt::format("copy overwrites '{}' before copying it; reorder the tensors", from.name));
    }
  }
  return {};
}

/// Models copies between IPUs and copies to or from Streaming Memory, which take place one after the other.
DeviceTime time(const Device& device, const ReplicaSystem& system, const Graph& graph, const Operation& operation) {
  std::vector<LinkTransfer> transfers;
  std::map<std::uint32_t, Bytes> streamed;  // Keyed by IPU.
  for (std::size_t k = 0; k < operation.inputs.size(); ++k) {
    const Tensor& from = graph.tensor(operation.inputs[k]);
    const Tensor& to = graph.tensor(operation.outputs[k]);
    if (from.is_remote() || to.is_remote()) {
      streamed[to.ipu] += (from.is_remote() ? to : from).type.bytes();
    } else {
      transfers.push_back({from.ipu, to.ipu, from.type.bytes()});
    }
  }
  if (streamed.empty()) {
    return time_of_copy(device, static_cast<std::uint32_t>(system.ipus_per_replica), transfers);
  }
  DeviceTime time = time_of_streaming_copy(
      device, std::ranges::max_element(streamed, {}, [](const auto& s) { return s.second; })->second);
  if (!transfers.empty()) {
    const DeviceTime between = time_of_copy(device, static_cast<std::uint32_t>(system.ipus_per_replica), transfers);
    time.compute = between.compute;
    time.link = between.link;
    time.sync += between.sync;
  }
  return time;
}

void lower(const Operation& operation, proto::Step& step) {
  const Copy copy = *Copy::from(operation);
  proto::Copy& lowered = *step.mutable_copy();
  add_tensors(copy.from_tensors, *lowered.mutable_from());
  add_tensors(copy.to_tensors, *lowered.mutable_to());
  for (const std::int64_t entry : copy.from_entries) {
    lowered.add_from_entries(static_cast<std::int32_t>(entry));
  }
  for (const std::int64_t entry : copy.to_entries) {
    lowered.add_to_entries(static_cast<std::int32_t>(entry));
  }
}

StepTensors tensors(const proto::Step& step) {
  return {.reads = ids_of(step.copy().from()), .writes = ids_of(step.copy().to())};
}

Result<std::unique_ptr<Action>> prepare(const proto::Step& step, Machine& machine) {
  const proto::Copy& copy = step.copy();
  std::vector<Pair> pairs;
  for (int k = 0; k < copy.from_size(); ++k) {
    const HostTensor from = machine.tensor(copy.from(k));
    const HostTensor to = machine.tensor(copy.to(k));
    const std::size_t size = std::min(from.bytes.size(), to.bytes.size());
    const std::int32_t from_entry = copy.from_entries().empty() ? -1 : copy.from_entries(k);
    const std::int32_t to_entry = copy.to_entries().empty() ? -1 : copy.to_entries(k);
    if ((from_entry < 0 && from.bytes.size() != size) || (to_entry < 0 && to.bytes.size() != size)) {
      return fail(ErrorCode::kBug,
                  fmt::format("the Program copies '{}' to '{}', which has a different size", from.name, to.name));
    }
    pairs.push_back({{copy.from(k), from_entry}, {copy.to(k), to_entry}, size});
  }
  return std::make_unique<CopyAction>(std::move(pairs), machine);
}

}  // namespace

std::vector<MachineOperation> operations() {
  return {{kKind, proto::Step::kCopy, Spends::kComputing, verify, time, lower, tensors, prepare}};
}

}  // namespace machine::copy

Operation Copy::operation() const {
  Attributes attributes;
  if (!from_entries.empty()) {
    attributes.set(machine::copy::kFromEntries, from_entries);
  }
  if (!to_entries.empty()) {
    attributes.set(machine::copy::kToEntries, to_entries);
  }
  return {std::string{machine::copy::kKind}, from_tensors, to_tensors, std::move(attributes)};
}

std::optional<Copy> Copy::from(const Operation& operation) {
  if (!is(operation)) {
    return std::nullopt;
  }
  return Copy{operation.inputs, operation.outputs, machine::copy::entries_of(operation, machine::copy::kFromEntries),
              machine::copy::entries_of(operation, machine::copy::kToEntries)};
}

bool Copy::is(const Operation& operation) {
  return operation.kind == machine::copy::kKind;
}

}  // namespace poprun
