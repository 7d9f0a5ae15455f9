#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "replica/search/changed_job.h"

/// What a job can change so that it needs less memory.
namespace poprun {

/// One kind of change, in one or more settings.
struct Remedy {
  using Setting = std::function<void(ChangedJob&)>;

  /// Those that the job does not have yet, mildest first. Empty: the remedy does not apply to it.
  std::vector<Setting> settings;

  /// Each setting needs less memory than the one before, so that not all have to be tried.
  bool by_halves = false;

  /// The kinds of tile_contents.h that need less. Empty: all of them.
  std::vector<std::string_view> relieves = {};

  /// There is more memory for all that the job has, not only for what is large now.
  bool adds_memory = false;

  /// The job would learn from other data, so it is tried only after all others.
  bool is_last_resort = false;
};

/// The remedies for a job, cheapest first by the device time of a sample and by what it costs to
/// try them: those that compute more or move once a step, then other stages and more hardware,
/// lower precision, what moves in every micro-batch or phase, and last other data. A further remedy
/// is a further entry.
std::vector<Remedy> remedies_for(const ChangedJob& job);

}  // namespace poprun
