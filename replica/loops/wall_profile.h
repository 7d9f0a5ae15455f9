#pragma once

#include <cstdint>
#include <vector>

#include "proto/coordinator.pb.h"
#include "replica/base/error.h"
#include "replica/ports/communicator.h"

namespace poprun {

/// Adds up the slices of a StepTrace to the wall time of each step of the Program.
class WallProfile {
 public:
  void add(const proto::TracedSteps& traced);

  /// Returns the mean wall seconds of all executions in a training step, by Step.number, over all replicas. The last
  /// value is the time spent waiting for the other replicas of the host between steps of the Program. Collective.
  /// Requires: all replicas have added the same training steps.
  [[nodiscard]] Result<std::vector<float>> seconds(Communicator& communicator) const;

 private:
  std::vector<double> nanoseconds_;  ///< By Step.number.
  double sharing_ = 0;               ///< Nanoseconds of waiting.
  std::uint64_t training_steps_ = 0;
};

}  // namespace poprun
