#include <algorithm>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/machine/exchange.h"
#include "replica/machine/machine.h"
#include "replica/machine/operations.h"

namespace poprun {
namespace machine::all_reduce {
namespace {

constexpr std::string_view kKind = "all_reduce";
constexpr std::string_view kAwait = "await_all_reduces";

class AllReduceAction final : public Action {
 public:
  /// Tensors of which each replica needs only the part that it owns.
  struct Divided {
    std::vector<std::uint32_t> tensors;
    std::vector<Buffer> buffers;     ///< Their bytes.
    Communicator* owners = nullptr;  ///< Null if `tensors` is empty.
  };

  AllReduceAction(Reduction reduction, bool in_background, std::vector<Buffer> buffers, Communicator& communicator,
                  Divided divided, Machine& machine)
      : reduction_(reduction),
        in_background_(in_background),
        buffers_(std::move(buffers)),
        communicator_(communicator),
        divided_(std::move(divided)),
        machine_(machine) {}

  Status run() override {
    if (in_background_) {
      return communicator_.begin_all_reduce(reduction_, buffers_);
    }
    due_.clear();
    for (std::size_t k = 0; k < divided_.tensors.size(); ++k) {
      if (!machine_.take_reduced(divided_.tensors[k])) {
        due_.push_back(divided_.buffers[k]);
      }
    }
    if (!due_.empty()) {
      POPRUN_TRY(divided_.owners->reduce_to_owners(reduction_, due_));
    }
    return buffers_.empty() ? Status{} : communicator_.all_reduce(reduction_, buffers_);
  }

  [[nodiscard]] std::string activity() const override {
    return fmt::format("all-reduce of {}", counted(buffers_.size() + divided_.buffers.size(), "tensor"));
  }

 private:
  Reduction reduction_;
  bool in_background_;
  std::vector<Buffer> buffers_;
  Communicator& communicator_;
  Divided divided_;
  Machine& machine_;
  std::vector<Buffer> due_;  ///< Buffers of `divided_` that were not reduced early.
};

bool are_spelt_right(const Operation& operation) {
  const auto is_one = [&](const auto& spelt) {
    const AllReduce foreground{spelt.first, false, {}, group_of(operation)};
    const AllReduce background{spelt.first, true, {}, group_of(operation)};
    return operation.attributes == foreground.operation().attributes ||
           operation.attributes == background.operation().attributes;
  };
  return std::ranges::any_of(kReductions, is_one);
}

Status verify(const Graph& graph, const Operation& operation) {
  if (operation.inputs.empty() || operation.inputs != operation.outputs) {
    return fail(ErrorCode::kUsage, "all_reduce needs at least one tensor and reduces every tensor in place");
  }
  if (!are_spelt_right(operation)) {
    return fail(ErrorCode::kUsage,
                fmt::format("all_reduce accepts reduction=\"sum\", \"mean\" or \"max\", background=1 "
                            "and group=SIZE; given: {}",
                            to_text(operation.attributes)));
  }
  return verify_summable(graph, kKind, operation.inputs);
}

DeviceTime time(const Device& device, const ReplicaSystem& system, const Graph& graph, const Operation& operation) {
  return time_of_all_reduce(device, graph.bytes(operation.inputs), sharing_replicas(operation, system),
                            system.ipus_per_replica);
}

void lower(const Operation& operation, proto::Step& step) {
  const AllReduce value = *AllReduce::from(operation);
  step.mutable_all_reduce()->set_reduction(operation.attributes.text("reduction"));
  step.mutable_all_reduce()->set_in_background(value.in_background);
  step.mutable_all_reduce()->set_group(static_cast<std::uint32_t>(value.group));
  add_tensors(value.tensors, *step.mutable_all_reduce()->mutable_tensors());
  if (value.in_background) {
    step.set_links(proto::LINKS_BACKGROUND);
  }
}

StepTensors tensors(const proto::Step& step) {
  const std::vector<std::uint32_t> all = ids_of(step.all_reduce().tensors());
  StepTensors tensors{.reads = all, .writes = all, .begins_exchange = all, .ends_exchange = all};
  if (step.all_reduce().in_background()) {
    tensors.ends_exchange.clear();
  }
  return tensors;
}

Result<std::unique_ptr<Action>> prepare(const proto::Step& step, Machine& machine) {
  const std::optional<Reduction> reduction = parse_reduction(step.all_reduce().reduction());
  if (!reduction) {
    return fail(ErrorCode::kBug, fmt::format("the Program names the reduction '{}', which does not exist",
                                             step.all_reduce().reduction()));
  }
  std::vector<Buffer> buffers;
  AllReduceAction::Divided divided;
  if (!step.all_reduce().divisible().empty()) {
    divided.owners = machine.owners();
  }
  for (const std::uint32_t id : step.all_reduce().tensors()) {
    const HostTensor tensor = machine.tensor(id);
    const std::optional<ElementType> type = element_type_of(tensor.type.data);
    if (!type) {
      return fail(ErrorCode::kBug,
                  fmt::format("the Program reduces '{}' over replicas, but its type cannot be summed", tensor.name));
    }
    const auto& divisible = step.all_reduce().divisible();
    const auto at = std::ranges::find(divisible, id);
    if (divided.owners != nullptr && at != divisible.end()) {
      const std::uint32_t owner = step.all_reduce().owners(static_cast<int>(at - divisible.begin()));
      divided.buffers.push_back({*type, tensor.bytes, tensor.name, owner});
      divided.tensors.push_back(id);
    } else {
      buffers.push_back({*type, tensor.bytes, tensor.name});
    }
  }
  POPRUN_ASSIGN(Communicator * communicator, machine.group(step.all_reduce().group()));
  return std::make_unique<AllReduceAction>(*reduction, step.all_reduce().in_background(), std::move(buffers),
                                           *communicator, std::move(divided), machine);
}

class AwaitAction final : public Action {
 public:
  AwaitAction(int tensors, Communicator& communicator) : tensors_(tensors), communicator_(communicator) {}

  Status run() override { return communicator_.await_all_reduces(); }

  [[nodiscard]] std::string activity() const override {
    return fmt::format("all-reduce of {} in the background", counted(static_cast<std::uint64_t>(tensors_), "tensor"));
  }

 private:
  int tensors_;
  Communicator& communicator_;
};

Status verify_await(const Graph& /*graph*/, const Operation& operation) {
  if (operation.inputs.empty() || operation.inputs != operation.outputs || !operation.attributes.values().empty()) {
    return fail(ErrorCode::kUsage,
                "await_all_reduces needs at least one tensor, writes every tensor in place and accepts no attributes");
  }
  return {};
}

/// Returns zero for the step itself: the timeline computes the time that the pending reductions still need.
DeviceTime time_await(const Device& /*device*/, const ReplicaSystem& /*system*/, const Graph& /*graph*/,
                      const Operation& /*operation*/) {
  return {};
}

void lower_await(const Operation& operation, proto::Step& step) {
  add_tensors(operation.inputs, *step.mutable_await_all_reduces()->mutable_tensors());
  step.set_links(proto::LINKS_AWAITED);
}

StepTensors tensors_await(const proto::Step& step) {
  const std::vector<std::uint32_t> all = ids_of(step.await_all_reduces().tensors());
  return {.reads = all, .writes = all, .begins_exchange = {}, .ends_exchange = all};
}

Result<std::unique_ptr<Action>> prepare_await(const proto::Step& step, Machine& machine) {
  return std::make_unique<AwaitAction>(step.await_all_reduces().tensors_size(), machine.communicator());
}

}  // namespace

std::vector<MachineOperation> operations() {
  return {{kKind, proto::Step::kAllReduce, Spends::kWaitingForReplicas, verify, time, lower, tensors, prepare},
          {kAwait, proto::Step::kAwaitAllReduces, Spends::kWaitingForReplicas, verify_await, time_await, lower_await,
           tensors_await, prepare_await}};
}

}  // namespace machine::all_reduce

Operation AllReduce::operation() const {
  Attributes attributes = group_attributes(group);
  attributes.set("reduction", std::string{to_text(reduction)});
  if (in_background) {
    attributes.set("background", std::int64_t{1});
  }
  return {std::string{machine::all_reduce::kKind}, tensors, tensors, std::move(attributes)};
}

std::optional<AllReduce> AllReduce::from(const Operation& operation) {
  if (operation.kind != machine::all_reduce::kKind) {
    return std::nullopt;
  }
  return AllReduce{*parse_reduction(operation.attributes.text("reduction")), operation.attributes.has("background"),
                   operation.inputs, group_of(operation)};
}

Operation AwaitAllReduces::operation() const {
  return {std::string{machine::all_reduce::kAwait}, tensors, tensors, {}};
}

bool AwaitAllReduces::is(const Operation& operation) {
  return operation.kind == machine::all_reduce::kAwait;
}

}  // namespace poprun
