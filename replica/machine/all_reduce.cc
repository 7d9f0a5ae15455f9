#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "replica/machine/element_type.h"
#include "replica/machine/machine.h"
#include "replica/machine/operations.h"
#include "replica/machine/step_tensors.h"

namespace poprun {
namespace {

constexpr std::string_view kKind = "all_reduce";
constexpr const char* kGroup = "group";

struct Spelling {
  Reduction reduction;
  const char* text;
};

/// How graphs and Programs spell a reduction.
constexpr std::array<Spelling, 3> kSpellings = {
    {{Reduction::kSum, "sum"}, {Reduction::kMean, "mean"}, {Reduction::kMax, "max"}}};

std::optional<Reduction> parse_reduction(std::string_view text) {
  const auto* const found = std::ranges::find(kSpellings, text, &Spelling::text);
  return found == kSpellings.end() ? std::nullopt : std::optional(found->reduction);
}

class AllReduceAction final : public Action {
 public:
  AllReduceAction(Reduction reduction, bool in_background, std::vector<Buffer> buffers,
                  Communicator& communicator)
      : reduction_(reduction),
        in_background_(in_background),
        buffers_(std::move(buffers)),
        communicator_(communicator) {}

  Status run() override {
    return in_background_ ? communicator_.begin_all_reduce(reduction_, buffers_)
                          : communicator_.all_reduce(reduction_, buffers_);
  }

  [[nodiscard]] std::string activity() const override {
    return fmt::format("all-reduce of {} tensors", buffers_.size());
  }

 private:
  Reduction reduction_;
  bool in_background_;
  std::vector<Buffer> buffers_;
  Communicator& communicator_;
};

bool are_spelt_right(Attributes attributes) {
  std::int64_t group = 0;
  if (const auto& values = attributes.values(); values.contains(kGroup)) {
    const auto* const size = std::get_if<std::int64_t>(&values.at(kGroup));
    group = size != nullptr && *size > 0 ? *size : -1;
  }
  return group >= 0 && std::ranges::any_of(kSpellings, [&](const Spelling& spelling) {
           return attributes ==
                      AllReduce{spelling.reduction, false, {}, group}.operation().attributes ||
                  attributes ==
                      AllReduce{spelling.reduction, true, {}, group}.operation().attributes;
         });
}

Status verify(const Graph& graph, const Operation& operation) {
  if (operation.inputs.empty() || operation.inputs != operation.outputs) {
    return fail(ErrorCode::kUsage, "all_reduce reduces at least one tensor, each in place");
  }
  const Attributes& attributes = operation.attributes;
  if (!are_spelt_right(attributes)) {
    return fail(ErrorCode::kUsage, fmt::format("all_reduce takes reduction=\"sum\", \"mean\" or "
                                               "\"max\", background=1 and group=SIZE; it has: {}",
                                               to_text(attributes)));
  }
  for (const TensorId id : operation.inputs) {
    if (!element_type_of(graph.tensor(id).type.data)) {
      return fail(ErrorCode::kUsage,
                  fmt::format("all_reduce of '{}': cannot sum {}", graph.tensor(id).name,
                              to_text(graph.tensor(id).type)));
    }
  }
  return {};
}

DeviceTime time(const Device& device, const ReplicaSystem& system, const Graph& graph,
                const Operation& operation) {
  const std::int64_t group = AllReduce::from(operation)->group;
  return time_of_all_reduce(device, graph.bytes(operation.inputs),
                            group > 0 ? group : system.replicas, system.ipus_per_replica);
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
    return fail(ErrorCode::kBug,
                fmt::format("the Program names the reduction '{}', which does not exist",
                            step.all_reduce().reduction()));
  }
  std::vector<Buffer> buffers;
  for (const std::uint32_t id : step.all_reduce().tensors()) {
    const HostTensor tensor = machine.tensor(id);
    const std::optional<ElementType> type = element_type_of(tensor.type.data);
    if (!type) {
      return fail(ErrorCode::kBug,
                  fmt::format("the Program reduces '{}' over replicas, which cannot be summed",
                              tensor.name));
    }
    buffers.push_back({*type, tensor.bytes, tensor.name});
  }
  POPRUN_ASSIGN(Communicator * communicator, machine.group(step.all_reduce().group()));
  return std::make_unique<AllReduceAction>(*reduction, step.all_reduce().in_background(),
                                           std::move(buffers), *communicator);
}

}  // namespace

Operation AllReduce::operation() const {
  const auto* const spelling = std::ranges::find(kSpellings, reduction, &Spelling::reduction);
  Attributes attributes{{"reduction", std::string{spelling->text}}};
  if (in_background) {
    attributes.set("background", std::int64_t{1});
  }
  if (group > 0) {
    attributes.set(kGroup, group);
  }
  return {std::string{kKind}, tensors, tensors, std::move(attributes)};
}

std::optional<AllReduce> AllReduce::from(const Operation& operation) {
  if (operation.kind != kKind) {
    return std::nullopt;
  }
  return AllReduce{*parse_reduction(operation.attributes.text("reduction")),
                   operation.attributes.has("background"), operation.inputs,
                   operation.attributes.has(kGroup) ? operation.attributes.integer(kGroup) : 0};
}

MachineOperation all_reduce_operation() {
  return {.kind = kKind,
          .step = proto::Step::kAllReduce,
          .spends = Spends::kWaitingForReplicas,
          .verify = verify,
          .time = time,
          .lower = lower,
          .tensors = tensors,
          .prepare = prepare};
}

}  // namespace poprun
