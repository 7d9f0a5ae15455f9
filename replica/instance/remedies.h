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
};

/// One kind of change, in one or more settings.
struct Remedy {
  using Setting = std::function<void(ChangedJob&)>;

  /// Those that the job does not have yet, mildest first. Empty: the remedy does not apply to it.
  std::vector<Setting> settings;

  /// Each setting needs less memory than the one before, so that not all have to be tried.
  bool by_halves = false;

  /// The job would learn from other data, so it is tried only after all others.
  bool is_last_resort = false;
};

/// The remedies for a job, cheapest first: those that cost only time, then more hardware, then
/// lower precision, then other data. A further remedy is a further entry.
std::vector<Remedy> remedies_for(const ChangedJob& job);

}  // namespace poprun
