#include "replica/engine/engine.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "replica/base/half.h"
#include "replica/base/random.h"
#include "replica/engine/finite.h"
#include "replica/ops/half/half_kernel.h"

namespace poprun {
namespace {

constexpr std::int64_t kScratchAlignment = 64;

/// Adds the time it lives to a counter.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin_;
    seconds_ += elapsed.count();
  }

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

std::span<float> as_floats(std::span<std::byte> bytes) {
  // NOLINTNEXTLINE: the bytes of an f32 tensor, aligned by the plan.
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

/// Four normal numbers of deviation 1 from four uniform words (Box and Muller, "A note on the
/// generation of random normal deviates", 1958), in double.
std::array<float, 4> normal_floats(const std::array<std::uint32_t, 4>& words) {
  std::array<float, 4> values{};
  for (std::size_t k = 0; k < 4; k += 2) {
    const double u = (static_cast<double>(words[k]) + 1) * 0x1.0p-32;  // In (0, 1].
    const double angle = 2 * std::numbers::pi * static_cast<double>(words[k + 1]) * 0x1.0p-32;
    const double radius = std::sqrt(-2 * std::log(u));
    values[k] = static_cast<float>(radius * std::cos(angle));
    values[k + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return values;
}

/// Four numbers in [-1, 1).
std::array<float, 4> uniform_floats(const std::array<std::uint32_t, 4>& words) {
  std::array<float, 4> values{};
  std::ranges::transform(words, values.begin(),
                         [](std::uint32_t word) { return 2.0F * unit_float(word) - 1.0F; });
  return values;
}

Result<ElementType> element_type_of(DataType type) {
  switch (type) {
    case DataType::kF32:
      return ElementType::kF32;
    case DataType::kF16:
      return ElementType::kF16;
    case DataType::kI32:
      return ElementType::kI32;
    case DataType::kU8:
      break;
  }
  return fail(ErrorCode::kBug, "the Program reduces bytes over replicas, which have no sum");
}

Reduction reduction_of(proto::Reduction reduction) {
  if (reduction == proto::REDUCTION_MEAN) {
    return Reduction::kMean;
  }
  return reduction == proto::REDUCTION_MAX ? Reduction::kMax : Reduction::kSum;
}

}  // namespace

Engine::Engine(const Program& program, Communicator& communicator, HostIo& host,
               EngineOptions options, std::function<void(std::string_view)> activity)
    : program_(program),
      communicator_(communicator),
      host_(host),
      options_(options),
      activity_(std::move(activity)),
      moment_{.seed = options.seed, .replica = index_of(communicator.self())} {}

Result<std::unique_ptr<Engine>> Engine::create(const Program& program, Communicator& communicator,
                                               HostIo& host, const EngineOptions& options,
                                               std::function<void(std::string_view)> activity) {
  std::unique_ptr<Engine> engine(
      new Engine(program, communicator, host, options, std::move(activity)));
  POPRUN_TRY(engine->allocate());
  POPRUN_TRY(engine->prepare());
  return engine;
}

Status Engine::allocate() {
  for (const proto::IpuMemory& memory : program_.memory()) {
    POPRUN_ASSIGN(const std::span<std::byte> bytes,
                  communicator_.allocate(Bytes{static_cast<std::int64_t>(memory.capacity())}));
    arenas_.emplace_back(bytes);
    if (options_.poison_dead) {
      arenas_.back().poison(Bytes{0}, Bytes{static_cast<std::int64_t>(memory.peak())});
    }
  }
  return {};
}

std::vector<Bytes> Engine::reach_of(const proto::Step& step) const {
  std::vector<Bytes> reach(arenas_.size());
  for (const std::uint32_t tensor : tensors_of(step)) {
    const proto::Tensor& t = program_.tensors(static_cast<int>(tensor));
    reach.at(t.ipu()) =
        std::max(reach.at(t.ipu()), Bytes{static_cast<std::int64_t>(t.offset() + t.bytes())});
  }
  return reach;
}

std::span<std::byte> Engine::bytes_of(std::uint32_t tensor) const {
  const proto::Tensor& t = program_.tensors(static_cast<int>(tensor));
  return arenas_.at(t.ipu()).at(Bytes{static_cast<std::int64_t>(t.offset())},
                                Bytes{static_cast<std::int64_t>(t.bytes())});
}

Status Engine::prepare() {
  for (const proto::Tensor& tensor : program_.tensors()) {
    POPRUN_ASSIGN(TensorType type, parse_type(tensor.type()));
    types_.push_back(std::move(type));
  }
  for (const proto::Function& function : program_.functions()) {
    POPRUN_ASSIGN(std::vector<Prepared> steps, prepare_steps(function.steps()));
    functions_[function.name()] = {std::move(steps), cost_of(function)};
  }
  scratch_.resize(static_cast<std::size_t>(scratch_size_.count() + kScratchAlignment));
  for (auto& [name, function] : functions_) {
    bind_scratch(function.steps);
  }
  return {};
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
    Prepared prepared;
    prepared.step = &step;
    prepared.reach = reach_of(step);
    if (step.has_repeat()) {
      POPRUN_ASSIGN(prepared.repeated, prepare_steps(step.repeat().steps()));
    } else if (step.has_execute()) {
      POPRUN_TRY(prepare_execute(step.execute(), prepared));
    } else if (step.has_stream_in()) {
      from_host_.insert(step.stream_in().tensors().begin(), step.stream_in().tensors().end());
      prepare_host(step.stream_in().tensors(), step.stream_in().stream(), "read of", prepared);
    } else if (step.has_stream_out()) {
      prepare_host(step.stream_out().tensors(), step.stream_out().stream(), "write to", prepared);
    } else if (step.has_all_reduce()) {
      for (const std::uint32_t tensor : step.all_reduce().tensors()) {
        POPRUN_ASSIGN(const ElementType type, element_type_of(types_.at(tensor).data));
        prepared.exchanged.push_back(
            {type, bytes_of(tensor), program_.tensors(static_cast<int>(tensor)).name()});
      }
      prepared.activity = fmt::format("all-reduce of {} tensors", prepared.exchanged.size());
    } else if (step.has_await_all_reduces()) {
      prepared.activity = fmt::format("all-reduce of {} tensors in the background",
                                      step.await_all_reduces().tensors_size());
    }
    all.push_back(std::move(prepared));
  }
  return all;
}

Status Engine::prepare_execute(const proto::Execute& execute, Prepared& prepared) {
  const Operator* op = find_operator(execute.operation());
  if (op == nullptr) {
    return fail(ErrorCode::kBug, fmt::format("the Program uses operator '{}', which does not exist",
                                             execute.operation()));
  }
  Signature signature;
  POPRUN_ASSIGN(signature.attributes, parse_attributes(execute.attributes()));
  for (const std::uint32_t tensor : execute.inputs()) {
    signature.inputs.push_back(types_.at(tensor));
    prepared.operands.inputs.push_back(bytes_of(tensor).data());
  }
  for (const std::uint32_t tensor : execute.outputs()) {
    signature.outputs.push_back(types_.at(tensor));
    prepared.operands.outputs.push_back(bytes_of(tensor).data());
  }
  // What is updated in place, weights above all, is checked by who reads it: that costs no further
  // pass over it. Steps that only move numbers make none that are not finite.
  for (const std::uint32_t tensor : execute.outputs()) {
    if (prepared.step->cost().flops() > 0 &&
        std::ranges::find(execute.inputs(), tensor) == execute.inputs().end()) {
      prepared.checked.push_back(tensor);
    }
  }
  prepared.operands.moment = &moment_;
  prepared.kernel = prepare_kernel(*op, signature);
  scratch_size_ = std::max(scratch_size_, prepared.kernel->scratch());
  return {};
}

void Engine::prepare_host(const google::protobuf::RepeatedField<std::uint32_t>& tensors,
                          const std::string& stream, std::string_view verb, Prepared& prepared) {
  for (const std::uint32_t tensor : tensors) {
    prepared.host_tensors.push_back(
        {program_.tensors(static_cast<int>(tensor)).name(), types_.at(tensor), bytes_of(tensor)});
  }
  prepared.activity = fmt::format("{} host stream {}", verb, stream);
}

Status Engine::run(const std::string& function) {
  const auto found = functions_.find(function);
  POPRUN_CHECK(found != functions_.end());
  POPRUN_TRY(run_steps(found->second.steps));
  add_cost(device_cost_, found->second.cost, 1);
  return {};
}

Status Engine::run_steps(std::vector<Prepared>& steps) {
  for (Prepared& prepared : steps) {
    const bool observed = observer_ != nullptr && last_round_;
    if (observed) {
      observer_->before(*prepared.step);
    }
    POPRUN_TRY(run_step(prepared));
    if (observed) {
      observer_->after(*prepared.step);
    }
    if (options_.poison_dead) {
      poison(*prepared.step);
    }
  }
  return {};
}

Status Engine::run_step(Prepared& prepared) {
  const proto::Step& step = *prepared.step;
  for (std::size_t ipu = 0; ipu < arenas_.size(); ++ipu) {
    arenas_[ipu].use(prepared.reach[ipu]);
  }
  if (step.has_repeat()) {
    for (std::uint32_t round = 0; round < step.repeat().count(); ++round) {
      moment_.micro_batch = round;
      last_round_ = round + 1 == step.repeat().count();
      POPRUN_TRY(run_steps(prepared.repeated));
    }
    moment_.micro_batch = 0;
    return {};
  }
  if (!prepared.activity.empty()) {
    activity_(prepared.activity);
  }
  if (step.has_execute()) {
    const Stopwatch stopwatch(wall_.compute);
    return execute(prepared);
  }
  if (step.has_all_reduce()) {
    const Stopwatch stopwatch(wall_.exchange);
    const Reduction reduction = reduction_of(step.all_reduce().reduction());
    return step.all_reduce().in_background()
               ? communicator_.begin_all_reduce(reduction, prepared.exchanged)
               : communicator_.all_reduce(reduction, prepared.exchanged);
  }
  if (step.has_await_all_reduces()) {
    const Stopwatch stopwatch(wall_.exchange);
    return communicator_.await_all_reduces();
  }
  const Stopwatch stopwatch(wall_.host);
  if (step.has_stream_in()) {
    return host_.write(step.stream_in().stream(), prepared.host_tensors);
  }
  if (step.has_stream_out()) {
    if (options_.check_finite) {
      POPRUN_TRY(check_finite(step.stream_out().tensors(), "read by the host"));
    }
    return host_.read(step.stream_out().stream(), prepared.host_tensors);
  }
  initialise(step.initialise());
  return {};
}

Status Engine::execute(Prepared& prepared) {
  prepared.kernel->run(prepared.operands);
  if (!options_.check_finite) {
    return {};
  }
  const proto::Execute& step = prepared.step->execute();
  for (const std::uint32_t tensor : prepared.checked) {
    const auto found = find_not_finite(types_.at(tensor), bytes_of(tensor));
    if (found && !(found->what == kInfinity && takes_extremes(step, types_.at(tensor).data))) {
      if (observer_ != nullptr) {
        observer_->broken_off(*prepared.step);
      }
      POPRUN_TRY(check_finite(step.inputs(), "read by " + step.operation()));
      return fail_not_finite(tensor, *found, "made by " + step.operation());
    }
  }
  return {};
}

Status Engine::check_finite(const google::protobuf::RepeatedField<std::uint32_t>& tensors,
                            std::string_view what) const {
  for (const std::uint32_t tensor : tensors) {
    const auto found = find_not_finite(types_.at(tensor), bytes_of(tensor));
    if (found && !(found->what == kInfinity && may_be_infinite(tensor))) {
      return fail_not_finite(tensor, *found, what);
    }
  }
  return {};
}

bool Engine::may_be_infinite(std::uint32_t tensor) const {
  const proto::Role role = program_.tensors(static_cast<int>(tensor)).role();
  return role == proto::ROLE_ACTIVATION || role == proto::ROLE_CONSTANT;
}

bool Engine::takes_extremes(const proto::Execute& step, DataType result) const {
  return std::ranges::any_of(step.inputs(), [&](std::uint32_t tensor) {
    return may_be_infinite(tensor) && has_extreme(types_.at(tensor), bytes_of(tensor), result);
  });
}

Status Engine::fail_not_finite(std::uint32_t tensor, const NotFinite& found,
                               std::string_view what) const {
  const char* remedy = from_host_.contains(tensor)
                           ? "the data has it; repair data.source"
                           : "lower the learning rate, clip the gradients (training.clip-norm), or "
                             "with half precision scale the loss (training.loss-scaling = auto)";
  return fail(
      ErrorCode::kData,
      fmt::format("{} in element {} of '{}' {}, {} in step {} on replica {}: {}", found.what,
                  found.element, program_.tensors(static_cast<int>(tensor)).name(),
                  to_text(types_.at(tensor)), what, moment_.step + 1, moment_.replica, remedy));
}

void Engine::initialise(const proto::Initialise& step) {
  const TensorType& type = types_.at(step.tensor());
  if (type.data == DataType::kF32) {
    initialise(step, as_floats(bytes_of(step.tensor())));
    return;
  }
  std::vector<float> wide(static_cast<std::size_t>(type.elements()));
  initialise(step, wide);
  // NOLINTNEXTLINE: the bytes of an f16 tensor.
  to_halves(wide.data(), reinterpret_cast<Half*>(bytes_of(step.tensor()).data()), wide.size());
}

void Engine::initialise(const proto::Initialise& step, std::span<float> values) const {
  if (step.kind_case() == proto::Initialise::kConstant) {
    std::ranges::fill(values, static_cast<float>(step.constant()));
    return;
  }
  const std::uint64_t key =
      random_key(options_.seed, program_.tensors(static_cast<int>(step.tensor())).name());
  const bool normal = step.kind_case() == proto::Initialise::kNormalDeviation;
  const auto spread = static_cast<float>(normal ? step.normal_deviation() : step.uniform_bound());
  for (std::size_t i = 0; i < values.size(); i += 4) {
    const auto words = philox(key, i / 4, 0);
    const auto four = normal ? normal_floats(words) : uniform_floats(words);
    for (std::size_t k = 0; k < 4 && i + k < values.size(); ++k) {
      values[i + k] = spread * four[k];
    }
  }
}

void Engine::poison(const proto::Step& step) {
  for (const std::uint32_t tensor : step.releases()) {
    const proto::Tensor& t = program_.tensors(static_cast<int>(tensor));
    arenas_.at(t.ipu()).poison(Bytes{static_cast<std::int64_t>(t.offset())},
                               Bytes{static_cast<std::int64_t>(t.bytes())});
  }
}

void Engine::reset_clocks() {
  device_cost_.Clear();
  wall_ = {};
}

std::vector<Bytes> Engine::high_water() const {
  std::vector<Bytes> marks;
  for (const Arena& arena : arenas_) {
    marks.push_back(arena.high_water());
  }
  return marks;
}

std::span<const std::byte> Engine::inspect(const std::string& name) const {
  for (int t = 0; t < program_.tensors_size(); ++t) {
    if (program_.tensors(t).name() == name) {
      return bytes_of(static_cast<std::uint32_t>(t));
    }
  }
  return {};
}

}  // namespace poprun
