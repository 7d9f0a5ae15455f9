#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>

#include <fmt/format.h>

#include "replica/base/half.h"
#include "replica/base/random.h"
#include "replica/machine/machine.h"
#include "replica/machine/operations.h"

namespace poprun {
namespace machine::initialise {
namespace {

constexpr std::string_view kKind = "initialise";

struct Spelling {
  Distribution distribution;
  const char* attribute;
};
constexpr std::array<Spelling, 3> kSpellings = {
    {{Distribution::kConstant, "constant"}, {Distribution::kUniform, "uniform"}, {Distribution::kNormal, "normal"}}};

/// Returns the distribution named by the operation's single attribute, with the attribute's real value.
std::optional<Initialiser> initialiser_of(const Attributes& attributes) {
  for (const auto& [distribution, name] : kSpellings) {
    const auto found = attributes.values().find(name);
    const double* value = found == attributes.values().end() ? nullptr : std::get_if<double>(&found->second);
    if (attributes.values().size() == 1 && value != nullptr) {
      return Initialiser{distribution, *value};
    }
  }
  return std::nullopt;
}

/// Returns four normal numbers with deviation 1 from four uniform words (Box and Muller, "A note on the generation of
/// random normal deviates", 1958), computed in double.
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

/// Returns four numbers in [-1, 1).
std::array<float, 4> uniform_floats(const std::array<std::uint32_t, 4>& words) {
  std::array<float, 4> values{};
  std::ranges::transform(words, values.begin(), [](std::uint32_t word) { return 2.0F * unit_float(word) - 1.0F; });
  return values;
}

/// Computes elements `first` and following. Requires: `first` is a multiple of 4.
void fill(const proto::Initialise& step, std::uint64_t key, std::size_t first, std::span<float> values) {
  if (step.kind_case() == proto::Initialise::kConstant) {
    std::ranges::fill(values, static_cast<float>(step.constant()));
    return;
  }
  const bool normal = step.kind_case() == proto::Initialise::kNormalDeviation;
  const auto spread = static_cast<float>(normal ? step.normal_deviation() : step.uniform_bound());
  for (std::size_t i = 0; i < values.size(); i += 4) {
    const auto words = philox(key, (first + i) / 4, 0);
    const auto four = normal ? normal_floats(words) : uniform_floats(words);
    for (std::size_t k = 0; k < 4 && i + k < values.size(); ++k) {
      values[i + k] = spread * four[k];
    }
  }
}

class InitialiseAction final : public Action {
 public:
  InitialiseAction(const proto::Initialise& step, const Machine& machine)
      : step_(step),
        type_(machine.tensor(step.tensor()).type.data),
        part_(machine.part_to_write(step.tensor())),
        key_(random_key(machine.seed(), machine.tensor(step.tensor()).name)) {}

  Status run() override {
    if (type_ == DataType::kI32) {
      const std::vector<std::int32_t> same(part_.bytes.size() / sizeof(std::int32_t),
                                           static_cast<std::int32_t>(step_.constant()));
      std::ranges::copy(std::as_bytes(std::span(same)), part_.bytes.begin());
      return {};
    }
    if (type_ == DataType::kF32) {
      // NOLINTNEXTLINE: the bytes of an f32 tensor, aligned by the plan.
      auto* floats = reinterpret_cast<float*>(part_.bytes.data());
      fill(step_, key_, part_.begin, {floats, part_.bytes.size() / sizeof(float)});
      return {};
    }
    std::vector<float> wide(part_.bytes.size() / sizeof(Half));
    fill(step_, key_, part_.begin, wide);
    // NOLINTNEXTLINE: the bytes of an f16 tensor.
    to_halves(wide.data(), reinterpret_cast<Half*>(part_.bytes.data()), wide.size());
    return {};
  }

  [[nodiscard]] std::string activity() const override { return {}; }

 private:
  const proto::Initialise& step_;
  DataType type_;
  Machine::TensorPart part_;
  std::uint64_t key_;
};

Status verify(const Graph& graph, const Operation& operation) {
  if (!operation.inputs.empty() || operation.outputs.size() != 1) {
    return fail(ErrorCode::kUsage, "initialise accepts no input and has exactly one output");
  }
  const Tensor& tensor = graph.tensor(operation.outputs[0]);
  if (tensor.type.data == DataType::kU8) {
    return fail(ErrorCode::kUsage,
                fmt::format("initialise sets f32, f16 and i32 tensors; '{}' is {}", tensor.name, to_text(tensor.type)));
  }
  const std::optional<Initialiser> initialiser = initialiser_of(operation.attributes);
  const bool random = initialiser && initialiser->distribution != Distribution::kConstant;
  if (!initialiser || (random && tensor.type.data == DataType::kI32)) {
    return fail(ErrorCode::kUsage, fmt::format("initialise of '{}' accepts constant, uniform or normal, with a real "
                                               "number, or, for integers, only constant; given: {}",
                                               tensor.name, to_text(operation.attributes)));
  }
  return {};
}

DeviceTime time(const Device& device, const ReplicaSystem& /*system*/, const Graph& graph, const Operation& operation) {
  return time_of_host_copy(device, graph.bytes(operation.outputs));
}

void lower(const Operation& operation, proto::Step& step) {
  proto::Initialise& initialise = *step.mutable_initialise();
  initialise.set_tensor(index_of(operation.outputs[0]));
  const Initialiser initialiser = *initialiser_of(operation.attributes);
  switch (initialiser.distribution) {
    case Distribution::kConstant:
      initialise.set_constant(initialiser.value);
      break;
    case Distribution::kUniform:
      initialise.set_uniform_bound(initialiser.value);
      break;
    case Distribution::kNormal:
      initialise.set_normal_deviation(initialiser.value);
      break;
  }
}

StepTensors tensors(const proto::Step& step) {
  return {.writes = {step.initialise().tensor()}};
}

Result<std::unique_ptr<Action>> prepare(const proto::Step& step, Machine& machine) {
  return std::make_unique<InitialiseAction>(step.initialise(), machine);
}

}  // namespace

std::vector<MachineOperation> operations() {
  return {{kKind, proto::Step::kInitialise, Spends::kWaitingForHost, verify, time, lower, tensors, prepare}};
}

}  // namespace machine::initialise

Operation Initialise::operation() const {
  const auto* const spelling = std::ranges::find(machine::initialise::kSpellings, initialiser.distribution,
                                                 &machine::initialise::Spelling::distribution);
  return {std::string{machine::initialise::kKind}, {}, {tensor}, {{spelling->attribute, initialiser.value}}};
}

bool Initialise::is(const Operation& operation) {
  return operation.kind == machine::initialise::kKind;
}

}  // namespace poprun
