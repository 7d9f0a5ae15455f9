#pragma once

#include <cstdint>
#include <vector>

#include "replica/loops/loop.h"
#include "replica/program/program.h"

namespace poprun {

/// Measures how long a replica takes for each step of the Program, on the wall clock. Leaves out the first training
/// step, which touches all memory, if there are further ones. Cost: two readings of the clock for each step of the
/// Program.
class WallProfile final : public StepWatcher, private StepObserver {
 public:
  /// The job has `training_steps` steps.
  WallProfile(const Program& program, std::uint64_t training_steps);

  /// Returns the mean wall seconds of all executions in a training step, by Step.number, over all replicas. Waiting for
  /// the other replicas of the host between steps of the Program is the last value. Collective.
  [[nodiscard]] Result<std::vector<float>> seconds(Communicator& communicator) const;

 private:
  void begin(std::uint64_t step, Engine& engine) override;
  void end(const StepReport& report, Engine& engine) override;
  void before(const proto::Step& step) override;
  void after(const proto::Step& step) override;
  void before_exchange() override;
  void after_exchange(std::size_t replicas) override;
  void broken_off(const proto::Step& /*step*/) override {}
  [[nodiscard]] bool sees_every_round() const override { return true; }

  std::vector<double> totals_;  ///< Seconds, by Step.number; the last is that of the meetings.
  std::uint64_t first_;         ///< The first training step that is measured.
  std::uint64_t measured_ = 0;  ///< Training steps.
  double began_ = 0;            ///< Of the innermost step, or of a meeting.
};

}  // namespace poprun
