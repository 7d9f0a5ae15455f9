#include "replica/check/value_trace.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "replica/check/state_record.h"
#include "replica/machine/machine.h"

namespace poprun {
namespace {

/// The step with that number and the function that it is in; null if there is none.
struct Found {
  const proto::Function* function = nullptr;
  const proto::Step* step = nullptr;
};

const proto::Step* find_step(const google::protobuf::RepeatedPtrField<proto::Step>& steps,
                             std::uint32_t number) {
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

/// `batch`: the word for what a part computes at once.
std::string place_text(const proto::Function& function, std::string_view batch,
                       std::uint32_t index) {
  if (!function.has_part()) {
    return fmt::format("function '{}'", function.name());
  }
  return fmt::format("{} {}, {} part of stage {} on IPU {}", batch, index + 1,
                     function.part().backward() ? "backward" : "forward", function.part().stage(),
                     function.part().ipu());
}

}  // namespace

void ValueTrace::begin(std::uint64_t step, Engine& engine) {
  if (step == step_ && traced_ == Of::kStep) {
    watch(engine);
  }
}

void ValueTrace::end(const StepReport& report, Engine& engine) {
  if (report.step == step_ && traced_ == Of::kEvaluation) {
    watch(engine);
  } else if (engine_ != nullptr) {
    engine.set_observer(nullptr);
    engine_ = nullptr;
  }
}

void ValueTrace::watch(Engine& engine) {
  engine_ = &engine;
  engine.set_observer(this);
}

void ValueTrace::before(const proto::Step& /*step*/) {}

/// What an exchange in the background still works on is read at its end.
void ValueTrace::after(const proto::Step& step) {
  if (step.has_call() || step.all_reduce().in_background()) {
    return;
  }
  const StepTensors tensors = tensors_of(step);
  for (const auto* written : {&tensors.writes, &tensors.ends_exchange}) {
    for (const std::uint32_t tensor : *written) {
      values_.push_back(
          {tensor, engine_->micro_batch(), step.number(), digest_of(engine_->inspect(tensor))});
    }
  }
}

void ValueTrace::broken_off(const proto::Step& step) {
  after(step);
}

std::optional<std::string> ValueTrace::first_difference(const ValueTrace& other) const {
  // A tensor that is updated in place is written several times in a micro-batch.
  using Key = std::tuple<std::string, std::uint32_t, std::uint32_t>;
  const auto for_each = [](const ValueTrace& trace, auto visit) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> times;
    for (const Value& value : trace.values_) {
      const std::uint32_t time = times[{value.tensor, value.micro_batch}]++;
      const std::string& name = trace.program_.tensors(static_cast<int>(value.tensor)).name();
      if (!visit(Key{name, value.micro_batch, time}, value)) {
        return;
      }
    }
  };
  std::map<Key, const Value*> others;
  for_each(other, [&](Key key, const Value& value) {
    others.emplace(std::move(key), &value);
    return true;
  });
  std::optional<std::string> difference;
  for_each(*this, [&](const Key& key, const Value& value) {
    const auto found = others.find(key);
    if (found != others.end() && found->second->digest != value.digest) {
      difference = other.text_of(*found->second);
    }
    return !difference;
  });
  return difference;
}

std::string ValueTrace::text_of(const Value& value) const {
  const auto [function, step] = find_step(program_, value.step);
  const std::string& name = program_.tensors(static_cast<int>(value.tensor)).name();
  return step == nullptr
             ? fmt::format("'{}'", name)
             : fmt::format("'{}' of {} in {}", name, operation_text(*step),
                           place_text(*function, traced_ == Of::kStep ? "micro-batch" : "batch",
                                      value.micro_batch));
}

}  // namespace poprun
