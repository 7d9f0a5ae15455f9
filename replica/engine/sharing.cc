#include "replica/engine/sharing.h"

#include <algorithm>

#include "replica/engine/device_memory.h"
#include "replica/ops/face/operator.h"

namespace poprun {
namespace {

/// Returns whether all replicas meet in the step whenever it runs. Divisible tensors may have been reduced before.
bool always_meets(const proto::Step& step) {
  const proto::AllReduce& reduce = step.all_reduce();
  return step.has_all_reduce() && !reduce.in_background() && reduce.group() == 0 &&
         reduce.divisible_size() < reduce.tensors_size();
}

}  // namespace

Result<Sharing> Sharing::create(const Program& program, Communicator& communicator) {
  const bool has_common = std::ranges::any_of(program.tensors(), [](const proto::Tensor& t) { return t.common(); });
  if (!has_common || communicator.size() == 1) {
    return Sharing{};
  }
  Sharing sharing;
  POPRUN_ASSIGN(sharing.host_, communicator.group(Group::host()));
  if (sharing.host_->size() == 1) {
    return Sharing{};
  }
  for (std::size_t ipu = 0; ipu < static_cast<std::size_t>(program.memory_size()); ++ipu) {
    POPRUN_ASSIGN(const CommonMemory memory, sharing.host_->allocate_common(common_capacity(program, ipu)));
    sharing.memories_.push_back(memory);
  }
  return sharing;
}

OwnedPart Sharing::owned(const proto::Tensor& tensor, std::size_t elements) const {
  return is_active() ? owned_part(elements, host_->size(), index_of(host_->self()), tensor.owner())
                     : OwnedPart{0, elements};
}

bool Sharing::computes(const proto::Tensor& tensor) const {
  return !is_active() || tensor.owner() == 0 || owner_of(tensor.owner(), host_->size()) == index_of(host_->self());
}

Sharing::Use Sharing::use_of(const Program& program, const proto::Step& step, bool is_view) const {
  if (!is_active() || is_view) {
    return {};
  }
  const auto tensor = [&](std::uint32_t id) -> const proto::Tensor& { return program.tensors(static_cast<int>(id)); };
  const auto is_common = [&](std::uint32_t id) { return tensor(id).common(); };
  const StepTensors tensors = tensors_of(step);
  Use use{.reads = std::ranges::any_of(tensors.reads, is_common),
          .writes = std::ranges::any_of(tensors.writes, is_common),
          .meets = always_meets(step)};
  const proto::Execute& execute = step.execute();
  const std::uint32_t owner = execute.outputs().empty() ? 0 : tensor(execute.outputs(0)).owner();
  const auto& inputs = execute.inputs();
  if (owner > 0) {  // The owner reads what it wrote itself.
    use.reads = std::ranges::any_of(inputs, [&](auto id) { return is_common(id) && tensor(id).owner() != owner; });
  } else if (execute.divisible()) {  // The replica reads only its own elements of the operands that are cut.
    const Operator* op = find_operator(execute.operation());
    use.reads = op == nullptr || std::any_of(inputs.begin() + op->on_shards.inputs, inputs.end(), is_common);
  }
  return use;
}

void Sharing::after(const Use& use) {
  is_read_ = (is_read_ && !use.meets) || use.reads;
  is_written_ = (is_written_ && !use.meets) || use.writes;
}

Status Sharing::meet() {
  is_read_ = false;
  is_written_ = false;
  return host_->barrier();
}

}  // namespace poprun
