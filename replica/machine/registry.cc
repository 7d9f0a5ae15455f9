#include <algorithm>
#include <iterator>

#include "replica/machine/machine.h"

namespace poprun {

#define POPRUN_FAMILY(stem)                   \
  namespace machine::stem {                   \
  std::vector<MachineOperation> operations(); \
  }
#include "replica/machine/families.inc"
#undef POPRUN_FAMILY

const std::vector<MachineOperation>& all_machine_operations() {
  static const std::vector<MachineOperation> kAll = [] {
    std::vector<MachineOperation> all;
#define POPRUN_FAMILY(stem) std::ranges::move(machine::stem::operations(), std::back_inserter(all));
#include "replica/machine/families.inc"
#undef POPRUN_FAMILY
    std::ranges::sort(all, {}, &MachineOperation::kind);
    return all;
  }();
  return kAll;
}

const MachineOperation* find_machine_operation(std::string_view kind) {
  const auto& all = all_machine_operations();
  const auto found = std::ranges::lower_bound(all, kind, {}, &MachineOperation::kind);
  return found != all.end() && found->kind == kind ? &*found : nullptr;
}

const MachineOperation* find_machine_operation(const proto::Step& step) {
  const auto& all = all_machine_operations();
  const auto found = std::ranges::find(all, step.kind_case(), &MachineOperation::step);
  return found != all.end() ? &*found : nullptr;
}

StepTensors tensors_of(const proto::Step& step) {
  if (step.has_execute()) {
    return {.reads = ids_of(step.execute().inputs()), .writes = ids_of(step.execute().outputs())};
  }
  const MachineOperation* operation = find_machine_operation(step);
  return operation != nullptr ? operation->tensors(step) : StepTensors{};
}

}  // namespace poprun
