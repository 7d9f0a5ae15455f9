#include "replica/compiler/proofs/static_check.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "replica/base/text.h"
#include "replica/graph/types.h"
#include "replica/ops/face/operator.h"

namespace poprun {
namespace {

using Steps = google::protobuf::RepeatedPtrField<proto::Step>;

struct Use {
  const Operator* op = nullptr;
  Signature signature = {};
  std::vector<const proto::Tensor*> inputs = {};
  std::vector<const proto::Tensor*> outputs = {};
};

/// Returns the operator and operands that a step uses; nothing for a malformed step, which the engine will reject.
std::optional<Use> use_of(const Program& program, const proto::Execute& execute) {
  Use use{.op = find_operator(execute.operation())};
  auto attributes = parse_attributes(execute.attributes());
  if (use.op == nullptr || !attributes) {
    return std::nullopt;
  }
  use.signature.attributes = *std::move(attributes);
  const auto add = [&program](const auto& ids, auto& tensors, std::vector<TensorType>& types) {
    for (const std::uint32_t id : ids) {
      tensors.push_back(&program.tensors(static_cast<int>(id)));
      auto type = parse_type(tensors.back()->type());
      POPRUN_CHECK(type.has_value());
      types.push_back(*std::move(type));
    }
  };
  add(execute.inputs(), use.inputs, use.signature.inputs);
  add(execute.outputs(), use.outputs, use.signature.outputs);
  return use;
}

std::int64_t address_of(const proto::Tensor* tensor) {
  return static_cast<std::int64_t>(tensor->placement().offset());
}

bool is_view(const Use& use) {
  std::vector<std::int64_t> inputs;
  std::vector<std::int64_t> outputs;
  std::ranges::transform(use.inputs, std::back_inserter(inputs), address_of);
  std::ranges::transform(use.outputs, std::back_inserter(outputs), address_of);
  return is_view(*use.op, use.signature, inputs, outputs);
}

}  // namespace

tl::unexpected<Error> memory_bug(std::string_view what) {
  return fail(ErrorCode::kBug, fmt::format("memory: {}", what));
}

std::string describe(const proto::Step& step) {
  if (step.has_execute()) {
    return fmt::format("step {} ({} '{}')", step.number(), step.execute().operation(), step.execute().name());
  }
  const MachineOperation* operation = find_machine_operation(step);
  return fmt::format("step {} ({})", step.number(), operation ? operation->kind : "repeat");
}

std::vector<NamedStep> name_tensors(const Program& program, const Steps& steps) {
  std::vector<NamedStep> all;
  for (const proto::Step& step : steps) {
    NamedStep& named =
        all.emplace_back(NamedStep{&step, tensors_of(step), name_tensors(program, step.repeat().steps())});
    if (step.has_execute()) {
      const std::optional<Use> use = use_of(program, step.execute());
      named.is_view = use && is_view(*use);
    }
  }
  return all;
}

Status StaticCheck::steps(const std::vector<NamedStep>& all) {
  for (const NamedStep& named : all) {
    POPRUN_TRY(step(named));
    POPRUN_TRY(steps(named.inner));
  }
  return {};
}

Status StaticCheck::peaks() const {
  const int ipus = program_.memory_size();
  for (int m = 0; m < 2 * ipus; ++m) {
    const proto::IpuMemory& memory = program_.memory(m % ipus);
    const std::uint64_t highest = highest_[static_cast<std::size_t>(m)];
    const std::uint64_t planned = m < ipus ? memory.images_peak() : memory.streaming_peak();
    if (highest != planned) {
      return memory_bug(fmt::format("the tensors of the steps on IPU {} end at {} B{}, but the planned peak is {} B",
                                    m % ipus, highest, m < ipus ? "" : " of its Streaming Memory", planned));
    }
  }
  return {};
}

Status StaticCheck::step(const NamedStep& named) {
  const proto::Step& step = *named.step;
  const bool on_one_ipu = step.has_execute() || step.has_all_reduce() || step.has_stash() || step.has_restore();
  std::optional<std::uint32_t> first;
  for (const auto* ids : {&named.tensors.reads, &named.tensors.writes}) {
    for (const std::uint32_t id : *ids) {
      const proto::Tensor& tensor = program_.tensors(static_cast<int>(id));
      const std::uint32_t ipu = tensor.placement().ipu();
      if (ipu >= static_cast<std::uint32_t>(program_.memory_size())) {
        return memory_bug(fmt::format("'{}' is on IPU {}, but the replica has {}", tensor.name(), ipu,
                                      counted(static_cast<std::uint64_t>(program_.memory_size()), "IPU")));
      }
      if (is_remote(tensor) && !step.has_copy() && !step.has_stash() && !step.has_restore()) {
        return memory_bug(
            fmt::format("{} uses '{}' in Streaming Memory, which only copies, stashes and restores may access",
                        describe(step), tensor.name()));
      }
      if (!lives_at(tensor, step.number())) {
        return memory_bug(fmt::format("{} uses '{}' outside its planned live range", describe(step), tensor.name()));
      }
      first = first.value_or(id);
      const proto::Tensor& other = program_.tensors(static_cast<int>(*first));
      if (on_one_ipu && ipu != other.placement().ipu()) {
        return memory_bug(fmt::format("{} uses '{}' on IPU {} and '{}' on IPU {}", describe(step), other.name(),
                                      other.placement().ipu(), tensor.name(), ipu));
      }
      std::uint64_t& highest = highest_[memory_of(program_, tensor)];
      highest = std::max(highest, tensor.placement().offset() + tensor.bytes());
    }
  }
  return step.has_execute() && !named.is_view ? overlaps(step) : Status{};
}

Status StaticCheck::overlaps(const proto::Step& step) const {
  const std::optional<Use> use = use_of(program_, step.execute());
  if (!use) {
    return {};
  }
  for (std::size_t k = 0; k < use->outputs.size(); ++k) {
    const proto::Tensor* output = use->outputs[k];
    for (std::size_t i = 0; i < use->inputs.size(); ++i) {
      const proto::Tensor* input = use->inputs[i];
      const bool updated = std::ranges::find(use->inputs, output) != use->inputs.end();
      const bool taken = k == 0 && address_of(output) == address_of(input) && may_take(*use->op, use->signature, i);
      if (input != output && share_bytes(*input, *output) && (updated || !taken)) {
        return memory_bug(
            fmt::format("{} writes '{}' over its input '{}'", describe(step), output->name(), input->name()));
      }
    }
    for (std::size_t other = 0; other < k; ++other) {
      if (share_bytes(*use->outputs[other], *output)) {
        return memory_bug(
            fmt::format("{} writes '{}' over '{}'", describe(step), output->name(), use->outputs[other]->name()));
      }
    }
  }
  return {};
}

}  // namespace poprun
