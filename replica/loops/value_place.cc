#include "replica/loops/value_place.h"

#include <fmt/format.h>

#include "replica/machine/machine.h"

namespace poprun {
namespace {

/// A step and the function that contains it; both are null if the step does not exist.
struct Found {
  const proto::Function* function = nullptr;
  const proto::Step* step = nullptr;
};

const proto::Step* find_step(const google::protobuf::RepeatedPtrField<proto::Step>& steps, std::uint32_t number) {
  for (const proto::Step& step : steps) {
    if (step.number() == number) {
      return &step;
    }
    if (const proto::Step* inner = find_step(step.repeat().steps(), number); inner != nullptr) {
      return inner;
    }
  }
  return nullptr;
}

Found find_step(const Program& program, std::uint32_t number) {
  for (const proto::Function& function : program.functions()) {
    if (const proto::Step* step = find_step(function.steps(), number); step != nullptr) {
      return {&function, step};
    }
  }
  return {};
}

std::string operation_text(const proto::Step& step) {
  if (step.has_execute()) {
    return step.execute().operation();
  }
  const MachineOperation* operation = find_machine_operation(step);
  return std::string(operation == nullptr ? "step" : operation->kind);
}

/// Returns the place of a step, as a phrase.
std::string place_text(const proto::Function& function, std::string_view batch, std::uint32_t index) {
  if (!function.has_part()) {
    return fmt::format("function '{}'", function.name());
  }
  return fmt::format("{} {}, {} part of stage {} on IPU {}", batch, index + 1,
                     function.part().backward() ? "backward" : "forward", function.part().stage(),
                     function.part().ipu());
}

}  // namespace

std::string text_of(const Program& program, const ValuePlace& place, std::string_view batch) {
  const auto [function, step] = find_step(program, place.step);
  const std::string& name = program.tensors(static_cast<int>(place.tensor)).name();
  return step == nullptr ? fmt::format("'{}'", name)
                         : fmt::format("'{}' of {} in {}", name, operation_text(*step),
                                       place_text(*function, batch, place.micro_batch));
}

}  // namespace poprun
