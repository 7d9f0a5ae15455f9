#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "replica/engine/engine.h"
#include "replica/ops/half/half_kernel.h"
#include "replica/program/timeline.h"

/// How an engine prepares the steps of a Program.
namespace poprun {
namespace {

constexpr std::int64_t kScratchAlignment = 64;

/// Returns the tensors that a step names. Those only written come first, because an operand may share their bytes.
std::vector<std::uint32_t> named_by(const StepTensors& tensors) {
  std::vector<std::uint32_t> named;
  std::ranges::copy_if(tensors.writes, std::back_inserter(named), [&](std::uint32_t tensor) {
    return std::ranges::find(tensors.reads, tensor) == tensors.reads.end();
  });
  named.insert(named.end(), tensors.reads.begin(), tensors.reads.end());
  return named;
}

}  // namespace

Status Engine::allocate(std::span<const std::span<std::byte>> memory) {
  std::vector<Arena> arenas;
  for (const proto::IpuMemory& ipu : program_.memory()) {
    if (!memory.empty()) {
      POPRUN_CHECK(arenas.size() < memory.size() && Bytes{std::ssize(memory[arenas.size()])} >= images_capacity(ipu));
      arenas.emplace_back(memory[arenas.size()]);
      continue;
    }
    POPRUN_ASSIGN(const std::span<std::byte> bytes, communicator_.allocate(images_capacity(ipu)));
    arenas.emplace_back(bytes);
  }
  for (const proto::IpuMemory& ipu : program_.memory()) {
    POPRUN_ASSIGN(const std::span<std::byte> bytes,
                  streaming_.emplace_back().allocate(Bytes{static_cast<std::int64_t>(ipu.streaming_peak())}));
    arenas.emplace_back(bytes);
  }
  memory_ = std::make_unique<DeviceMemory>(program_, std::move(arenas));
  const bool on_tiles = !program_.memory().empty() && program_.memory(0).has_layout();
  if (options_.shares_images && memory.empty() && !on_tiles) {
    POPRUN_ASSIGN(sharing_, Sharing::create(program_, communicator_));
  }
  images_ = std::make_unique<HostImages>(program_, memory_->arenas(), sharing_.memories());
  judge_.emplace(program_, types_, *images_, moment_);
  if (options_.poison_dead) {
    memory_->poison_planned();
  }
  if (on_tiles) {
    tiles_ = std::make_unique<TileMemory>(program_);
  }
  return {};
}

Status Engine::prepare() {
  for (const proto::Tensor& tensor : program_.tensors()) {
    POPRUN_ASSIGN(TensorType type, parse_type(tensor.type()));
    types_.push_back(std::move(type));
  }
  if (Communicator* among = owners()) {
    early_ = EarlyReductions(program_, types_, *images_, *among,
                             {.batch_bytes = options_.early_batch_bytes, .poison = options_.poison_dead});
  }
  for (const proto::Function& function : program_.functions()) {
    POPRUN_ASSIGN(std::vector<Prepared> steps, prepare_steps(function.steps()));
    functions_[function.name()] = {std::move(steps), walk(program_, function).length};
  }
  for (const proto::Function& function : program_.functions()) {
    find_last_calls(function.steps(), 0);
  }
  bind_scratch();
  if (options_.elides_copies && !tiles_) {
    elide_copies();
  }
  return {};
}

template <typename Visit>
void Engine::visit_prepared(const Visit& visit) {
  const auto visit_all = [&visit](const auto& self, std::vector<Prepared>& steps) -> void {
    for (Prepared& prepared : steps) {
      visit(prepared);
      self(self, prepared.repeated);
    }
  };
  for (auto& [name, function] : functions_) {
    visit_all(visit_all, function.steps);
  }
}

/// Finds the copies that the host need not make. Steps that then read shared images instead of copies are marked.
void Engine::elide_copies() {
  std::set<std::uint32_t> views;
  visit_prepared([&](const Prepared& prepared) {
    if (prepared.is_view) {
      views.insert(prepared.step->number());
    }
  });
  ImageMoves moves = find_elided_copies(program_, *images_, views);
  std::set<std::uint32_t> reading_common;
  for (const auto& [step, before] : moves) {
    moving_.resize(types_.size());
    for (const ImageMove& move : before) {
      moving_[move.tensor] = true;
      if (images_->is_shared(move.place)) {
        reading_common.insert(move.tensor);
      }
    }
  }
  visit_prepared([&](Prepared& prepared) {
    if (const auto before = moves.find(prepared.step->number()); before != moves.end()) {
      prepared.moves = std::move(before->second);
    }
    prepared.sharing.reads |= !prepared.is_view && std::ranges::any_of(prepared.named, [&](std::uint32_t tensor) {
      return reading_common.contains(tensor);
    });
  });
}

/// Records the highest micro-batch index of each function that the steps call. The steps run with indices up to `last`.
void Engine::find_last_calls(const google::protobuf::RepeatedPtrField<proto::Step>& steps, std::uint32_t last) {
  for (const proto::Step& step : steps) {
    if (step.has_repeat()) {
      find_last_calls(step.repeat().steps(), last + step.repeat().count() - 1);
    } else if (const auto callee = functions_.find(step.call().function());
               step.has_call() && callee != functions_.end()) {
      const std::uint32_t index = last + step.call().micro_batch();
      callee->second.last_micro_batch = std::max(callee->second.last_micro_batch, index);
      find_last_calls(find_function(program_, callee->first)->steps(), index);
    }
  }
}

void Engine::bind_scratch() {
  scratch_.resize(static_cast<std::size_t>(scratch_size_.count() + kScratchAlignment));
  void* aligned = scratch_.data();
  std::size_t space = scratch_.size();
  std::align(kScratchAlignment, static_cast<std::size_t>(scratch_size_.count()), aligned, space);
  visit_prepared([&](Prepared& prepared) { prepared.operands.scratch = static_cast<std::byte*>(aligned); });
}

Result<std::vector<Engine::Prepared>> Engine::prepare_steps(
    const google::protobuf::RepeatedPtrField<proto::Step>& steps) {
  std::vector<Prepared> all;
  for (const proto::Step& step : steps) {
    Prepared& prepared = all.emplace_back();
    prepared.step = &step;
    if (tiles_ && step.all_reduce().in_background()) {
      return fail(ErrorCode::kBug, "the Program has a background exchange, but its tensors live on tiles");
    }
    const StepTensors tensors = tensors_of(step);
    prepared.named = named_by(tensors);
    prepared.writes = tensors.writes;
    prepared.reach = memory_->reach_of(prepared.named);
    if (step.has_repeat()) {
      POPRUN_ASSIGN(prepared.repeated, prepare_steps(step.repeat().steps()));
    } else if (step.has_execute()) {
      POPRUN_TRY(prepare_execute(step.execute(), prepared));
    } else {
      POPRUN_TRY(prepare_action(prepared));
    }
    if (owners() != nullptr) {
      prepared.completes = ids_of(step.completes());
    }
    prepared.sharing = sharing_.use_of(program_, step, prepared.is_view);
  }
  return all;
}

Status Engine::prepare_execute(const proto::Execute& execute, Prepared& prepared) {
  const Operator* op = find_operator(execute.operation());
  if (op == nullptr) {
    return fail(ErrorCode::kBug, fmt::format("the Program uses an unknown operator '{}'", execute.operation()));
  }
  Signature signature;
  POPRUN_ASSIGN(signature.attributes, parse_attributes(execute.attributes()));
  for (const std::uint32_t tensor : execute.inputs()) {
    signature.inputs.push_back(types_.at(tensor));
    prepared.operands.inputs.push_back(images_->of(tensor).data());
  }
  for (const std::uint32_t tensor : execute.outputs()) {
    signature.outputs.push_back(types_.at(tensor));
    prepared.operands.outputs.push_back(images_->of(tensor).data());
  }
  const bool only_moves = prepared.step->cost().flops() == 0 || (op->selects != nullptr && op->selects(signature));
  if (only_moves) {
    for (const std::uint32_t result : execute.outputs()) {
      judge_->note_move(result, execute.inputs());
    }
  }
  if (is_view(*op, signature, addresses(execute.inputs()), addresses(execute.outputs()))) {
    prepared.kernel = make_kernel([](const Operands& /*t*/) {});
    prepared.is_view = true;
    return {};
  }
  if (sharing_.is_active() && !execute.outputs().empty()) {
    const proto::Tensor& first = program_.tensors(static_cast<int>(execute.outputs(0)));
    if (!sharing_.computes(first)) {
      prepared.kernel = make_kernel([](const Operands& /*t*/) {});
      return {};
    }
    if (execute.divisible()) {
      narrow(execute, op->on_shards, signature, prepared.operands);
    } else if (first.owner() > 0) {
      write_shared(execute, prepared.operands);
    }
  }
  find_overwritten(execute, prepared);
  // Tensors updated in place are mostly weights. They are checked when they are read, which saves a pass over them.
  // Steps that only move or select numbers cannot produce non-finite ones.
  for (const std::uint32_t tensor : execute.outputs()) {
    if (!only_moves && std::ranges::find(execute.inputs(), tensor) == execute.inputs().end()) {
      prepared.checked.push_back(tensor);
    }
  }
  if (!prepared.checked.empty() && prepared.checked[0] == execute.outputs(0)) {
    prepared.watch = ProductWatch::of(*op, signature);
  }
  prepared.operands.moment = &moment_;
  prepared.operands.stray = &stray_;
  prepared.kernel = !signature.inputs.empty() && signature.inputs[0].elements() == 0
                        ? make_kernel([](const Operands& /*t*/) {})  // This replica owns no element.
                        : prepare_kernel(*op, signature);
  scratch_size_ = std::max(scratch_size_, prepared.kernel->scratch());
  return {};
}

/// Makes a step compute only the elements that this replica owns: of elementwise operands, the kernel sees only these.
void Engine::narrow(const proto::Execute& execute, const Cut& cut, Signature& signature, Operands& operands) const {
  write_shared(execute, operands);
  const auto cut_to_owned = [this](std::uint32_t id, auto& first, TensorType& type) {
    const OwnedPart part = owned(id);
    first += part.begin * width_of(id);
    type = {type.data, {static_cast<std::int64_t>(part.count)}, Layout::kRowMajor};
  };
  for (std::size_t i = 0; i < cut.inputs; ++i) {
    cut_to_owned(execute.inputs(static_cast<int>(i)), operands.inputs[i], signature.inputs[i]);
  }
  for (std::size_t i = 0; i < cut.outputs; ++i) {
    cut_to_owned(execute.outputs(static_cast<int>(i)), operands.outputs[i], signature.outputs[i]);
  }
}

/// Makes a step write shared images, also where it updates its operands.
void Engine::write_shared(const proto::Execute& execute, Operands& operands) const {
  for (int i = 0; i < execute.outputs_size(); ++i) {
    const std::uint32_t id = execute.outputs(i);
    if (!images_->is_shared(id)) {
      continue;
    }
    operands.outputs[static_cast<std::size_t>(i)] = images_->writable(id).data();
    for (int k = 0; k < execute.inputs_size(); ++k) {
      if (execute.inputs(k) == id) {
        operands.inputs[static_cast<std::size_t>(k)] = images_->writable(id).data();
      }
    }
  }
}

std::vector<std::int64_t> Engine::addresses(const google::protobuf::RepeatedField<std::uint32_t>& tensors) const {
  std::vector<std::int64_t> offsets;
  for (const std::uint32_t tensor : tensors) {
    offsets.push_back(static_cast<std::int64_t>(program_.tensors(static_cast<int>(tensor)).placement().offset()));
  }
  return offsets;
}

void Engine::find_overwritten(const proto::Execute& execute, Prepared& prepared) const {
  if (execute.outputs().empty() || std::ranges::find(execute.inputs(), execute.outputs(0)) != execute.inputs().end()) {
    return;
  }
  for (const std::uint32_t tensor : execute.inputs()) {
    if (images_->of(tensor).data() == images_->of(execute.outputs(0)).data()) {
      prepared.overwritten = tensor;
    }
  }
}

Status Engine::prepare_action(Prepared& prepared) {
  const MachineOperation* operation = find_machine_operation(*prepared.step);
  if (operation == nullptr) {
    return fail(ErrorCode::kBug, fmt::format("step {} of the Program is of an unknown kind", prepared.step->number()));
  }
  POPRUN_ASSIGN(prepared.action, operation->prepare(*prepared.step, *this));
  prepared.activity = prepared.action->activity();
  switch (operation->spends) {
    case Spends::kWaitingForReplicas:
      prepared.time = &WallSeconds::exchange;
      break;
    case Spends::kWaitingForHost:
      prepared.time = &WallSeconds::host;
      break;
    case Spends::kComputing:
      prepared.time = &WallSeconds::compute;
      break;
    case Spends::kNothing:
      break;
  }
  return {};
}

}  // namespace poprun
