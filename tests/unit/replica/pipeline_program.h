#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "replica/compiler/techniques/pipeline/schedule.h"
#include "replica/program/program.h"

/// Programs that are generated from a schedule and given times, for tests of the timeline.
namespace poprun::testing {

/// Cycles of one stage.
struct StageTime {
  std::uint64_t forward = 1;
  std::uint64_t backward = 2;
  std::uint64_t update = 0;         ///< 0: the stage is not updated.
  std::uint64_t recomputation = 0;  ///< Before each backward part.
};

/// Adds a step that computes on one IPU. Tensor k of the Program must be on IPU k.
inline void add_execute(google::protobuf::RepeatedPtrField<proto::Step>& steps, std::uint32_t ipu,
                        std::uint64_t cycles) {
  proto::Step& step = *steps.Add();
  step.mutable_execute()->add_outputs(ipu);
  step.mutable_cost()->set_compute_cycles(cycles);
}

/// Returns a Program in which tensor k is on IPU k.
inline Program program_of_ipus(std::uint32_t ipus) {
  Program program;
  program.mutable_device()->set_clock_hz(1e9);
  program.set_ipus(ipus);
  for (std::uint32_t ipu = 0; ipu < ipus; ++ipu) {
    program.add_tensors()->mutable_placement()->set_ipu(ipu);
    program.add_memory();
  }
  return program;
}

/// Adds the calls of one cycle, and copies that take no time: one between IPUs, and one on each IPU that needs it.
inline void add_cycle(const Timetable& table, const Cycle& cycle,
                      google::protobuf::RepeatedPtrField<proto::Step>& steps) {
  constexpr auto kBetweenIpus = std::numeric_limits<std::uint32_t>::max();
  std::map<std::uint32_t, proto::Copy> copies;  // By IPU, or by kBetweenIpus.
  for (const Slot& slot : cycle.slots) {
    const bool backward = slot.part == Part::kBackward;
    proto::Call& call = *steps.Add()->mutable_call();
    call.set_function(fmt::format("{}.{}", backward ? "backward" : "forward", slot.stage));
    call.set_micro_batch(static_cast<std::uint32_t>(slot.micro_batch));
    const std::uint32_t next = backward ? slot.stage - 1 : slot.stage + 1;
    if (next < table.ipu_of_stage.size()) {
      proto::Copy& copy = copies[table.ipu_of_stage[next] == slot.ipu ? slot.ipu : kBetweenIpus];
      copy.add_from(slot.ipu);
      copy.add_to(table.ipu_of_stage[next]);
    }
  }
  for (const auto& [ipu, copy] : copies) {
    *steps.Add()->mutable_copy() = copy;
  }
}

/// Returns a Program with functions "train", "forward.S" and "backward.S".
inline Program pipeline_program(const Timetable& table, const std::vector<StageTime>& times) {
  Program program = program_of_ipus(*std::ranges::max_element(table.ipu_of_stage) + 1);
  for (const bool backward : {false, true}) {
    for (std::uint32_t stage = 0; stage < times.size(); ++stage) {
      proto::Function& function = *program.add_functions();
      function.set_name(fmt::format("{}.{}", backward ? "backward" : "forward", stage));
      function.mutable_part()->set_stage(stage);
      function.mutable_part()->set_backward(backward);
      function.mutable_part()->set_recomputes(backward && times[stage].recomputation > 0);
      const std::uint32_t ipu = table.ipu_of_stage[stage];
      function.mutable_part()->set_ipu(ipu);
      add_execute(*function.mutable_steps(), ipu,
                  backward ? times[stage].recomputation + times[stage].backward : times[stage].forward);
    }
  }
  proto::Function& train = *program.add_functions();
  train.set_name("train");
  for (const auto& run : table.repeats) {
    auto* steps = train.mutable_steps();
    if (run.rounds > 1) {
      proto::Repeat& repeat = *steps->Add()->mutable_repeat();
      repeat.set_count(static_cast<std::uint32_t>(run.rounds));
      steps = repeat.mutable_steps();
    }
    for (const Cycle& cycle : run.cycles) {
      add_cycle(table, cycle, *steps);
    }
  }
  for (std::uint32_t stage = 0; stage < times.size(); ++stage) {
    if (times[stage].update > 0) {
      add_execute(*train.mutable_steps(), table.ipu_of_stage[stage], times[stage].update);
    }
  }
  return program;
}

}  // namespace poprun::testing
