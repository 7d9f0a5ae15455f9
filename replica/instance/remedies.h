#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "proto/host_streams.pb.h"
#include "proto/run_config.pb.h"

/// What a job can change so that it needs less memory.
namespace poprun {

/// A job, and the options by which it differs from the one that was asked for.
struct ChangedJob {
  proto::RunConfig config;
  proto::Dataset dataset;
  std::int64_t encoder_layers = 0;        ///< Between embeddings and head; 0: none.
  std::vector<std::string> changes = {};  ///< "model.precision half"; empty: the job itself.
  bool head_joins_embeddings = false;     ///< Where a remedy has arranged the stages.

  /// "A", "A and B" or "A, B and C".
  [[nodiscard]] std::string options() const;

  /// Whether remedies together have left a job that can be asked for: phases are for one or two
  /// IPUs, which they share out themselves.
  [[nodiscard]] bool is_consistent() const;
};

/// One kind of change, in one or more settings.
struct Remedy {
  using Setting = std::function<void(ChangedJob&)>;

  /// Those that the job does not have yet, mildest first. Empty: the remedy does not apply to it.
  std::vector<Setting> settings;

  /// Each setting needs less memory than the one before, so that not all have to be tried.
  bool by_halves = false;

  /// There is more memory for all that the job has, not only for what is large now.
  bool adds_memory = false;

  /// The job would learn from other data, so it is tried only after all others.
  bool is_last_resort = false;
};

/// The remedies for a job, cheapest first by the device time of a sample: those that compute more,
/// then more hardware, what moves once a step, lower precision, what moves in every micro-batch or
/// phase, and last other data. A further remedy is a further entry.
std::vector<Remedy> remedies_for(const ChangedJob& job);

}  // namespace poprun
