#include "replica/engine/engine.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "replica/engine/stopwatch.h"

namespace poprun {
namespace {

constexpr std::string_view kComputing = "computing";  // Activity between two waits.

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

void Engine::begin_function() {
  moment_.micro_batch = 0;
  round_ = 0;
  last_ = true;
  entry_ = 0;
  sharing_.begin_function();
}

Status Engine::run(const std::string& function, const EngineBreak& pause) {
  const auto found = functions_.find(function);
  POPRUN_CHECK(found != functions_.end());
  const std::span<Prepared> steps = found->second.steps;
  begin_function();
  if (pause.work) {
    POPRUN_TRY(run_steps(steps.first(pause.before_step)));
    POPRUN_TRY(pause.work());
  }
  POPRUN_TRY(run_steps(steps.subspan(pause.before_step)));
  POPRUN_TRY(meet_if_needed({.reads = true}));  // The host may read everything.
  device_time_ += options_.clock ? options_.clock(function, moment_.step + 1) : found->second.device_time;
  return {};
}

Status Engine::rehearse(const std::string& function, std::size_t steps, ReplicaId as, StepObserver& observer) {
  const auto found = functions_.find(function);
  POPRUN_CHECK(found != functions_.end());
  begin_function();
  is_rehearsal_ = true;
  const std::uint32_t self = std::exchange(moment_.replica, index_of(as));
  std::vector<StepObserver*> observers = std::exchange(observers_, {&observer});
  const Status ran = run_steps(std::span(found->second.steps).first(steps));
  observers_ = std::move(observers);
  moment_.replica = self;
  is_rehearsal_ = false;
  return ran;
}

Status Engine::run_steps(std::span<Prepared> steps) {
  for (Prepared& prepared : steps) {
    const auto tell = [&, last = last_](void (StepObserver::*event)(const proto::Step&)) {
      for (StepObserver* observer : observers_) {
        if (last || observer->sees_every_round()) {
          (observer->*event)(*prepared.step);
        }
      }
    };
    POPRUN_TRY(meet_if_needed(prepared.sharing));
    for (const ImageMove& move : prepared.moves) {
      images_->move(move.tensor, move.place == move.tensor ? nullptr : &images_->of(move.place)[move.offset]);
    }
    tell(&StepObserver::before);
    POPRUN_TRY(tiles_ ? run_on_tiles(prepared) : run_step(prepared));
    sharing_.after(prepared.sharing);
    tell(&StepObserver::after);
    POPRUN_TRY(reduce_early(prepared));
    bury(prepared.step->releases());
  }
  return {};
}

void Engine::bury(const google::protobuf::RepeatedField<std::uint32_t>& dead) {
  if (tiles_) {
    std::ranges::for_each(dead, [this](std::uint32_t tensor) { tiles_->poison(tensor); });
  } else if (options_.poison_dead) {
    std::ranges::for_each(dead, [this](std::uint32_t tensor) { images_->move(tensor, nullptr); });
    for (const std::uint32_t tensor : dead) {
      if (!images_->is_lent(tensor)) {
        memory_->poison(tensor);
      }
    }
  }
}

void Engine::follow_images(Prepared& prepared) const {
  if (moving_.empty()) {
    return;
  }
  const auto follow = [this](const auto& tensors, auto& addresses) {
    for (int i = 0; i < tensors.size(); ++i) {
      if (moving_[tensors[i]]) {
        addresses[static_cast<std::size_t>(i)] = images_->of(tensors[i]).data();
      }
    }
  };
  follow(prepared.step->execute().inputs(), prepared.operands.inputs);
  follow(prepared.step->execute().outputs(), prepared.operands.outputs);
}

Status Engine::meet_if_needed(const Sharing::Use& use) {
  if (!sharing_.must_meet_before(use)) {
    return {};
  }
  return exchange("meeting of the replicas on this host", [this] { return sharing_.meet(); });
}

Status Engine::reduce_early(const Prepared& prepared) {
  if (is_rehearsal_) {
    return {};  // No sum is needed.
  }
  early_.add(prepared.completes);
  if (prepared.completes.empty() || !early_.is_due()) {
    return {};
  }
  return exchange("all-reduce during the backward pass", [this] { return early_.reduce(); });
}

template <typename Collective>
Status Engine::exchange(std::string_view activity, const Collective& collective) {
  activity_(activity);
  std::ranges::for_each(observers_, [](StepObserver* observer) { observer->before_exchange(); });
  {
    const Stopwatch stopwatch(wall_.exchange);
    POPRUN_TRY(collective());
  }
  std::ranges::for_each(observers_, [&](StepObserver* o) { o->after_exchange(sharing_.host()->size()); });
  activity_(kComputing);
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
  follow_images(prepared);
  const bool watches = checks && prepared.watch;
  if (watches) {
    ProductWatch::begin();
  }
  prepared.kernel->run(prepared.operands);
  const proto::Execute& step = prepared.step->execute();
  if (stray_) {
    POPRUN_TRY(take_stray(step));
  }
  if (!options_.check_finite) {
    return {};
  }
  for (const std::uint32_t tensor : prepared.checked) {
    if (watches && tensor == step.outputs(0) && prepared.watch->is_finite(prepared.operands.output_f32(0))) {
      continue;
    }
    if (const auto found = judge_->fault_of_result(tensor, step, before)) {
      if (tiles_) {
        scatter_results(prepared);
      }
      std::ranges::for_each(observers_, [&](StepObserver* observer) { observer->broken_off(*prepared.step); });
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
  if (images_->is_shared(tensor)) {
    write_part(tensor, bytes);
    sharing_.after({.writes = true});
    return;
  }
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

void Engine::flip_bit(std::uint32_t tensor) {
  const std::size_t width = width_of(tensor);
  // In a little-endian number, the exponent of f32 begins at bit 23, and that of f16 at bit 10.
  const std::size_t bit = width == 4 ? 23 : width == 2 ? 10 : 0;
  const std::span<std::byte> image = images_->is_shared(tensor) ? images_->writable(tensor) : images_->of(tensor);
  if (tiles_) {
    tiles_->gather(tensor, image);
  }
  const auto middle = static_cast<std::size_t>(types_.at(tensor).elements()) / 2;
  image[middle * width + bit / 8] ^= std::byte{1} << bit % 8;
  if (tiles_) {
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

/// Returns the bytes of an element.
std::size_t Engine::width_of(std::uint32_t id) const {
  const auto elements = static_cast<std::size_t>(std::max<std::int64_t>(1, types_.at(id).elements()));
  return program_.tensors(static_cast<int>(id)).bytes() / elements;
}

OwnedPart Engine::owned(std::uint32_t id) const {
  return sharing_.owned(program_.tensors(static_cast<int>(id)), static_cast<std::size_t>(types_.at(id).elements()));
}

Machine::TensorPart Engine::part_to_write(std::uint32_t id) const {
  if (!images_->is_shared(id)) {
    return {images_->of(id), 0};
  }
  const OwnedPart part = owned(id);
  return {images_->writable(id).subspan(part.begin * width_of(id), part.count * width_of(id)), part.begin};
}

HostTensor Engine::draft(std::uint32_t id) const {
  return {program_.tensors(static_cast<int>(id)).name(), types_.at(id), images_->in_arena(id)};
}

void Engine::write_part(std::uint32_t id, std::span<const std::byte> whole) const {
  const TensorPart part = part_to_write(id);
  std::ranges::copy(whole.subspan(part.begin * width_of(id), part.bytes.size()), part.bytes.begin());
}

void Engine::publish(std::uint32_t id) const {
  if (images_->is_shared(id)) {
    write_part(id, images_->in_arena(id));
    release_pages(images_->in_arena(id));
  }
}

Communicator* Engine::owners() {
  const bool divides = sharing_.is_active() && sharing_.host()->size() == communicator_.size();
  return divides ? sharing_.host() : nullptr;
}

Status Engine::check_finite(std::span<const std::uint32_t> tensors, std::string_view use) {
  return options_.check_finite ? judge_->check(tensors, use) : Status{};
}

void Engine::reset_clocks(Cycles device_time) {
  device_time_ = device_time;
  wall_ = {};
}

}  // namespace poprun
