#include "replica/compiler/techniques/pipeline/schedule.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "replica/base/error.h"

namespace poprun {
namespace {

/// A part and the cycle in which it works on micro-batch 0.
struct Start {
  Slot slot;
  std::int64_t cycle;
};

/// Closed form of a schedule: a part begins micro-batch i exactly `i * period` cycles after it begins micro-batch 0.
struct Rhythm {
  std::int64_t period;
  std::vector<Start> starts;
};

std::int64_t period_of(Schedule schedule, std::int64_t stages, bool training) {
  switch (schedule) {
    case Schedule::kSequential:
      return training ? 2 * stages : stages;
    case Schedule::kGrouped:
      return 1;
    case Schedule::kInterleaved:
      return training ? 2 : 1;
    case Schedule::kPhased:
      break;  // This schedule has no period.
  }
  POPRUN_CHECK(false);
}

bool in_order(const Start& a, const Start& b) {
  const auto key = [](const Slot& slot) {
    const auto stage = static_cast<std::int64_t>(slot.stage);
    return std::tuple(slot.ipu, slot.part, slot.part == Part::kForward ? stage : -stage);
  };
  return key(a.slot) < key(b.slot);
}

Rhythm rhythm_of(Schedule schedule, const std::vector<std::uint32_t>& ipu_of_stage, bool training) {
  const auto stages = static_cast<std::uint32_t>(ipu_of_stage.size());
  const std::int64_t turn = schedule == Schedule::kGrouped ? 0 : 1;
  Rhythm rhythm{.period = period_of(schedule, stages, training), .starts = {}};
  for (std::uint32_t stage = 0; stage < stages; ++stage) {
    const std::uint32_t ipu = ipu_of_stage[stage];
    rhythm.starts.push_back({{ipu, stage, Part::kForward, 0}, stage});
    if (training) {
      const std::int64_t to_last = stages - 1 - stage;
      rhythm.starts.push_back({{ipu, stage, Part::kBackward, 0}, stages - 1 + turn + to_last});
    }
  }
  std::ranges::sort(rhythm.starts, in_order);
  return rhythm;
}

/// Appends the cycles of one round, which lasts one period. A part that starts in round k works on micro-batch `round -
/// k`, or pauses if there is no such micro-batch.
void add_round(const Rhythm& rhythm, std::int64_t round, std::int64_t micro_batches, Repeat& repeat) {
  const std::size_t first = repeat.cycles.size();
  repeat.cycles.resize(first + static_cast<std::size_t>(rhythm.period));
  for (const Start& start : rhythm.starts) {
    Slot slot = start.slot;
    slot.micro_batch = round - start.cycle / rhythm.period;
    if (0 <= slot.micro_batch && slot.micro_batch < micro_batches) {
      repeat.cycles[first + static_cast<std::size_t>(start.cycle % rhythm.period)].slots.push_back(slot);
    }
  }
}

Timetable phased_table(std::vector<std::uint32_t> ipu_of_stage, std::int64_t micro_batches, bool training) {
  const auto stages = static_cast<std::uint32_t>(ipu_of_stage.size());
  Timetable table{Schedule::kPhased, std::move(ipu_of_stage), micro_batches, training, {}};
  const auto slot = [&table](std::uint32_t stage, Part part) {
    return Slot{table.ipu_of_stage[stage], stage, part, 0};
  };
  for (std::uint32_t stage = 0; stage < stages; ++stage) {
    table.repeats.push_back({micro_batches, {{{slot(stage, Part::kForward)}}}});
  }
  if (training) {
    table.repeats.back().cycles[0].slots.push_back(slot(stages - 1, Part::kBackward));
    for (std::uint32_t stage = stages - 1; stage-- > 0;) {
      table.repeats.push_back({micro_batches, {{{slot(stage, Part::kBackward)}}}});
    }
  }
  return table;
}

}  // namespace

Timetable make_timetable(Schedule schedule, std::vector<std::uint32_t> ipu_of_stage, std::int64_t micro_batches,
                         bool training) {
  POPRUN_CHECK(!ipu_of_stage.empty() && micro_batches > 0);
  if (schedule == Schedule::kPhased) {
    return phased_table(std::move(ipu_of_stage), micro_batches, training);
  }
  const Rhythm rhythm = rhythm_of(schedule, ipu_of_stage, training);
  std::int64_t ramp = 0;  // Rounds between the first part's start and the last one's.
  for (const Start& start : rhythm.starts) {
    ramp = std::max(ramp, start.cycle / rhythm.period);
  }
  const std::int64_t steady = std::max<std::int64_t>(micro_batches - ramp, 0);
  const bool repeats = steady > 1;

  Timetable table{schedule, std::move(ipu_of_stage), micro_batches, training, {}};
  Repeat ends;
  for (std::int64_t round = 0; round < micro_batches + ramp; ++round) {
    if (repeats && round == ramp) {
      if (!ends.cycles.empty()) {
        table.repeats.push_back(std::exchange(ends, {}));
      }
      Repeat& repeat = table.repeats.emplace_back();
      repeat.rounds = steady;
      add_round(rhythm, round, micro_batches, repeat);
      round += steady - 1;
    } else {
      add_round(rhythm, round, micro_batches, ends);
    }
  }
  if (!ends.cycles.empty()) {
    table.repeats.push_back(std::move(ends));
  }
  return table;
}

std::int64_t stash_length(Schedule schedule, std::uint32_t stages, std::uint32_t stage, std::int64_t micro_batches) {
  POPRUN_CHECK(stage < stages && micro_batches > 0);
  const std::int64_t to_last = stages - 1 - stage;
  switch (schedule) {
    case Schedule::kSequential:
      return 1;
    case Schedule::kGrouped:
      return std::min(micro_batches, 2 * to_last + 1);
    case Schedule::kInterleaved:
      return std::min(micro_batches, to_last + 1);
    case Schedule::kPhased:
      return to_last == 0 ? 1 : micro_batches;
  }
  POPRUN_CHECK(false);
}

}  // namespace poprun
