#include "replica/engine/engine.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "replica/engine/stopwatch.h"
#include "replica/ops/half/half_kernel.h"
#include "replica/program/timeline.h"

namespace poprun {
namespace {

constexpr std::int64_t kScratchAlignment = 64;
constexpr std::string_view kComputing = "computing";  // Activity between two waits.

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

Engine::Engine(const Program& program, Communicator& communicator, HostIo& host, EngineOptions options,
               std::function<void(std::string_view)> activity)
    : program_(program),
      communicator_(communicator),
      host_(host),
      options_(options),
      activity_(std::move(activity)),
      moment_{.seed = options.seed, .replica = index_of(communicator.self())} {}

Result<std::unique_ptr<Engine>> Engine::create(const Program& program, Communicator& communicator, HostIo& host,
                                               const EngineOptions& options,
                                               std::function<void(std::string_view)> activity,
                                               std::span<const std::span<std::byte>> memory) {
  std::unique_ptr<Engine> engine(new Engine(program, communicator, host, options, std::move(activity)));
  POPRUN_TRY(engine->allocate(memory));
  POPRUN_TRY(engine->prepare());
  return engine;
}

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
  images_ = std::make_unique<HostImages>(program_, memory_->arenas());
  judge_.emplace(program_, types_, *images_, moment_);
  if (options_.poison_dead) {
    memory_->poison_planned();
  }
  if (!program_.memory().empty() && program_.memory(0).has_layout()) {
    tiles_ = std::make_unique<TileMemory>(program_);
  }
  return {};
}

Status Engine::prepare() {
  for (const proto::Tensor& tensor : program_.tensors()) {
    POPRUN_ASSIGN(TensorType type, parse_type(tensor.type()));
    types_.push_back(std::move(type));
  }
  for (const proto::Function& function : program_.functions()) {
    POPRUN_ASSIGN(std::vector<Prepared> steps, prepare_steps(function.steps()));
    functions_[function.name()] = {std::move(steps), walk(program_, function).length};
  }
  for (const proto::Function& function : program_.functions()) {
    find_last_calls(function.steps(), 0);
  }
  scratch_.resize(static_cast<std::size_t>(scratch_size_.count() + kScratchAlignment));
  for (auto& [name, function] : functions_) {
    bind_scratch(function.steps);
  }
  return {};
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

void Engine::bind_scratch(std::vector<Prepared>& steps) {
  void* aligned = scratch_.data();
  std::size_t space = scratch_.size();
  std::align(kScratchAlignment, static_cast<std::size_t>(scratch_size_.count()), aligned, space);
  for (Prepared& prepared : steps) {
    prepared.operands.scratch = static_cast<std::byte*>(aligned);
    bind_scratch(prepared.repeated);
  }
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
  if (prepared.step->cost().flops() == 0) {
    for (const std::uint32_t result : execute.outputs()) {
      judge_->note_move(result, execute.inputs());
    }
  }
  if (is_view(*op, signature, addresses(execute.inputs()), addresses(execute.outputs()))) {
    prepared.kernel = make_kernel([](const Operands& /*t*/) {});
    return {};
  }
  find_overwritten(execute, prepared);
  // Tensors updated in place are mostly weights. They are checked when they are read, which saves a pass over them.
  // Steps that only move numbers cannot produce non-finite ones.
  for (const std::uint32_t tensor : execute.outputs()) {
    if (prepared.step->cost().flops() > 0 && std::ranges::find(execute.inputs(), tensor) == execute.inputs().end()) {
      prepared.checked.push_back(tensor);
    }
  }
  prepared.operands.moment = &moment_;
  prepared.operands.stray = &stray_;
  prepared.kernel = prepare_kernel(*op, signature);
  scratch_size_ = std::max(scratch_size_, prepared.kernel->scratch());
  return {};
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

Status Engine::run(const std::string& function) {
  const auto found = functions_.find(function);
  POPRUN_CHECK(found != functions_.end());
  moment_.micro_batch = 0;
  round_ = 0;
  last_ = true;
  entry_ = 0;
  POPRUN_TRY(run_steps(found->second.steps));
  device_time_ += found->second.device_time;
  return {};
}

Status Engine::run_steps(std::vector<Prepared>& steps) {
  for (Prepared& prepared : steps) {
    const bool observed = observer_ != nullptr && (last_ || observer_->sees_every_round());
    if (observed) {
      observer_->before(*prepared.step);
    }
    POPRUN_TRY(tiles_ ? run_on_tiles(prepared) : run_step(prepared));
    if (observed) {
      observer_->after(*prepared.step);
    }
    for (const std::uint32_t tensor : prepared.step->releases()) {
      if (tiles_) {
        tiles_->poison(tensor);
      } else if (options_.poison_dead) {
        memory_->poison(tensor);
      }
    }
  }
  return {};
}

Status Engine::run_on_tiles(Prepared& prepared) {
  tiles_->begin(prepared.step->number());
  for (const std::uint32_t tensor : prepared.named) {
    tiles_->gather(tensor, images_->of(tensor));
  }
  POPRUN_TRY(run_step(prepared));
  scatter_results(prepared);
  for (const std::uint32_t tensor : prepared.named) {
    if (!is_remote(program_.tensors(static_cast<int>(tensor)))) {
      memory_->poison(tensor);
    }
  }
  return {};
}

void Engine::scatter_results(const Prepared& prepared) {
  for (const std::uint32_t tensor : prepared.writes) {
    tiles_->scatter(tensor, images_->of(tensor));
  }
}

Status Engine::run_step(Prepared& prepared) {
  memory_->use(prepared.reach);
  if (!prepared.activity.empty()) {
    activity_(prepared.activity);
  }
  if (prepared.kernel) {
    const Stopwatch stopwatch(wall_.compute);
    return execute(prepared);
  }
  if (!prepared.action) {
    return repeat(prepared);
  }
  if (prepared.time == nullptr) {
    return prepared.action->run();
  }
  const Stopwatch stopwatch(wall_.*prepared.time);
  POPRUN_TRY(prepared.action->run());
  if (!prepared.activity.empty()) {
    activity_(kComputing);
  }
  return {};
}

Status Engine::repeat(Prepared& prepared) {
  const std::uint32_t rounds = prepared.step->repeat().count();
  for (round_ = 0; round_ < rounds; ++round_) {
    last_ = round_ + 1 == rounds;
    POPRUN_TRY(run_steps(prepared.repeated));
  }
  round_ = 0;
  return {};
}

Result<Communicator*> Engine::group(std::size_t size) {
  if (size == 0 || size == communicator_.size()) {
    return &communicator_;
  }
  std::unique_ptr<Communicator>& group = groups_[size];
  if (!group) {
    POPRUN_ASSIGN(group, communicator_.group(Group::consecutive(size)));
  }
  return group.get();
}

Status Engine::call(const std::string& function, std::uint32_t micro_batch, std::uint32_t entry,
                    std::span<const std::string> salts) {
  const auto callee = functions_.find(function);
  if (callee == functions_.end()) {
    return fail(ErrorCode::kBug, fmt::format("the Program calls '{}', which does not exist", function));
  }
  const Moment caller = moment_;
  const bool caller_is_last = last_;
  const std::uint32_t caller_round = std::exchange(round_, 0);
  entry_ += entry;
  moment_.micro_batch = caller.micro_batch + micro_batch + caller_round;
  moment_.salts = salts;
  last_ = moment_.micro_batch == callee->second.last_micro_batch;
  POPRUN_TRY(run_steps(callee->second.steps));
  moment_ = caller;
  entry_ -= entry;
  last_ = caller_is_last;
  round_ = caller_round;
  return {};
}

Status Engine::execute(Prepared& prepared) {
  const bool checks = options_.check_finite && !prepared.checked.empty();
  const ValueJudge::Overwritten before = judge_->look_at(checks ? prepared.overwritten : std::nullopt);
  prepared.kernel->run(prepared.operands);
  const proto::Execute& step = prepared.step->execute();
  if (stray_) {
    POPRUN_TRY(take_stray(step));
  }
  if (!options_.check_finite) {
    return {};
  }
  for (const std::uint32_t tensor : prepared.checked) {
    if (const auto found = judge_->fault_of_result(tensor, step, before)) {
      if (tiles_) {
        scatter_results(prepared);
      }
      if (observer_ != nullptr) {
        observer_->broken_off(*prepared.step);
      }
      return judge_->blame(tensor, *found, step, before);
    }
  }
  return {};
}

Status Engine::take_stray(const proto::Execute& step) {
  const std::string text = judge_->text_of(*stray_, step);
  if (options_.check_indices) {
    return fail(ErrorCode::kData, text + "; fix the data, or the model that computes the index");
  }
  if (stray_index_.empty()) {
    stray_index_ = text;
  }
  stray_.reset();
  return {};
}

std::span<const std::byte> Engine::inspect(std::uint32_t tensor) const {
  if (tiles_) {
    tiles_->gather(tensor, images_->of(tensor));
  }
  return images_->of(tensor);
}

Engine::Resident Engine::resident(std::uint32_t tensor) const {
  const proto::Tensor& source = program_.tensors(static_cast<int>(tensor));
  if (!source.has_residence()) {
    return {inspect(tensor), !source.shard_of().empty()};
  }
  const proto::Residence& where = source.residence();
  if (where.entry() < 0) {
    return resident(where.tensor());
  }
  const std::size_t entry = static_cast<std::size_t>(where.entry());
  return {images_->of(where.tensor()).subspan(entry * source.bytes(), source.bytes()), !source.shard_of().empty()};
}

void Engine::restore(std::uint32_t tensor, std::span<const std::byte> bytes) {
  const proto::Tensor& target = program_.tensors(static_cast<int>(tensor));
  if (target.has_residence() && target.residence().entry() < 0) {
    restore(target.residence().tensor(), bytes);
    return;
  }
  POPRUN_CHECK(bytes.size() == target.bytes());
  const proto::Residence& where = target.residence();
  const std::size_t entry = static_cast<std::size_t>(where.entry());
  const std::span<std::byte> image = target.has_residence()
                                         ? images_->of(where.tensor()).subspan(entry * target.bytes(), target.bytes())
                                         : images_->of(tensor);
  std::ranges::copy(bytes, image.begin());
  if (tiles_ && !target.has_residence()) {
    tiles_->scatter(tensor, image);
  }
}

std::vector<Bytes> Engine::high_water() const {
  const std::vector<Bytes> marks = memory_->high_water();
  return {marks.begin(), marks.begin() + std::ssize(marks) / 2};
}

std::vector<Bytes> Engine::streaming_high_water() const {
  const std::vector<Bytes> marks = memory_->high_water();
  return {marks.begin() + std::ssize(marks) / 2, marks.end()};
}

std::vector<std::vector<Bytes>> Engine::tile_high_water() const {
  std::vector<std::vector<Bytes>> marks;
  for (std::size_t ipu = 0; tiles_ && ipu < streaming_.size(); ++ipu) {
    marks.push_back(tiles_->high_water(ipu));
  }
  return marks;
}

HostTensor Engine::tensor(std::uint32_t id) const {
  return {program_.tensors(static_cast<int>(id)).name(), types_.at(id), images_->of(id)};
}

Status Engine::check_finite(std::span<const std::uint32_t> tensors, std::string_view use) {
  return options_.check_finite ? judge_->check(tensors, use) : Status{};
}

void Engine::reset_clocks(Cycles device_time) {
  device_time_ = device_time;
  wall_ = {};
}

}  // namespace poprun
