#include "replica/program/stage_schedule.h"

#include <algorithm>
#include <map>
#include <utility>

#include "replica/base/error.h"
#include "replica/program/timeline.h"

namespace poprun {
namespace {

using Steps = google::protobuf::RepeatedPtrField<proto::Step>;

const proto::Part* part_called(const Program& program, const proto::Step& step) {
  const proto::Function* callee = find_function(program, step.call().function());
  return step.has_call() && callee != nullptr && callee->has_part() ? &callee->part() : nullptr;
}

/// Adds the cycles of `steps`. Within a cycle, an IPU runs forward parts before backward ones.
void add_cycles(const Program& program, const Steps& steps, proto::StageSchedule& schedule) {
  proto::CycleSequence sequence;
  sequence.set_repeat(1);
  bool begins = true;
  for (const proto::Step& step : steps) {
    if (step.has_repeat()) {
      *schedule.add_sequences() = std::exchange(sequence, {});
      sequence.set_repeat(1);
      const int first = schedule.sequences_size();
      add_cycles(program, step.repeat().steps(), schedule);
      POPRUN_CHECK(schedule.sequences_size() == first + 1);
      schedule.mutable_sequences(first)->set_repeat(step.repeat().count());
    }
    const proto::Part* part = part_called(program, step);
    if (part == nullptr) {
      begins = begins || step.has_copy() || step.has_repeat() || step.has_call();
      continue;
    }
    if (begins || (!part->backward() &&
                   std::ranges::any_of(sequence.cycles().rbegin()->parts(), [&](const proto::PartAtWork& work) {
                     return work.part().ipu() == part->ipu() && work.part().backward();
                   }))) {
      sequence.add_cycles();
    }
    begins = false;
    proto::PartAtWork& work = *sequence.mutable_cycles()->rbegin()->add_parts();
    *work.mutable_part() = *part;
    work.set_micro_batch(step.call().micro_batch());
  }
  *schedule.add_sequences() = std::move(sequence);
}

bool calls_part(const Program& program, const proto::Step& step) {
  return part_called(program, step) != nullptr ||
         std::ranges::any_of(step.repeat().steps(),
                             [&](const proto::Step& inner) { return calls_part(program, inner); });
}

/// Calls visit(step) for a step or, if the step is a call, for the steps of the called function.
template <typename Visit>
void for_each_step(const Program& program, const proto::Step& step, const Visit& visit) {
  if (!step.has_call()) {
    visit(step);
    return;
  }
  for (const proto::Step& inner : find_function(program, step.call().function())->steps()) {
    for_each_step(program, inner, visit);
  }
}

/// Returns the cycle of each IPU's update, given the cycles of the IPUs' last parts. An update follows the last parts
/// of its IPU and of the IPUs for which it waits, directly or through others.
std::map<std::uint32_t, std::int64_t> cycles_of_updates(const Program& program, const Steps& steps,
                                                        const std::map<std::uint32_t, std::int64_t>& last) {
  const auto parts_end = std::find_if(steps.rbegin(), steps.rend(), [&](const proto::Step& step) {
                           return calls_part(program, step);
                         }).base();
  std::map<std::uint32_t, std::int64_t> waited_for = last;
  std::map<std::uint32_t, std::int64_t> updates;
  const auto add = [&](const proto::Step& step) {
    const std::vector<std::uint32_t> ipus = ipus_of(program, step);
    std::int64_t cycle = 0;
    for (const std::uint32_t ipu : ipus) {
      cycle = std::max(cycle, waited_for[ipu]);
    }
    for (const std::uint32_t ipu : ipus) {
      waited_for[ipu] = cycle;
      if (step.has_execute() && last.contains(ipu)) {
        updates[ipu] = cycle + 1;
      }
    }
  };
  for (const proto::Step& step : std::ranges::subrange(parts_end, steps.end())) {
    for_each_step(program, step, add);
  }
  return updates;
}

}  // namespace

proto::StageSchedule stage_schedule(const Program& program, const proto::Function& function) {
  proto::StageSchedule schedule;
  add_cycles(program, function.steps(), schedule);
  std::map<std::uint32_t, std::int64_t> last;  // Keyed by IPU.
  std::int64_t count = 0;
  bool trains = false;
  for (const proto::CycleSequence& sequence : schedule.sequences()) {
    count += std::int64_t{sequence.repeat()} * sequence.cycles_size();
    for (int k = 0; k < sequence.cycles_size(); ++k) {
      for (const proto::PartAtWork& work : sequence.cycles(k).parts()) {
        last[work.part().ipu()] = count - (sequence.cycles_size() - k);
        trains = trains || work.part().backward();
      }
    }
  }
  if (trains) {
    for (const auto& [ipu, cycle] : cycles_of_updates(program, function.steps(), last)) {
      proto::IpuUpdate& update = *schedule.add_updates();
      update.set_ipu(ipu);
      update.set_cycle(static_cast<std::uint64_t>(cycle));
    }
  }
  return schedule;
}

}  // namespace poprun
