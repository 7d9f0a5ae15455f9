#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "proto/run_config.pb.h"
#include "replica/base/error.h"
#include "replica/engine/engine.h"
#include "replica/ports/communicator.h"
#include "replica/program/program.h"

namespace poprun {

/// Injects faults: inverts one bit of a tensor (Engine::flip_bit), so that users and tests can see the effect on a job.
///
///   weights, state, statistics   change before the step. If replicas of a host share the image, all of them see it.
///   other tensors                change when the step first writes them.
class BitFlips final : private StepObserver {
 public:
  /// `program` and `communicator` must outlive this. Requires: each flip names a replica of the job. Errors: kUsage if
  /// no training step uses a tensor of that name in In-Processor Memory, or if the job does not reach the step.
  static Result<std::unique_ptr<BitFlips>> create(const Program& program, const std::vector<proto::BitFlip>& flips,
                                                  std::uint64_t total_steps, Communicator& communicator);

  /// Call before and after training step `step`. Collective in steps with flips of weights.
  Status begin(std::uint64_t step, Engine& engine);
  void end(Engine& engine) { engine.remove_observer(*this); }

 private:
  struct Flip {
    std::uint32_t replica;
    std::uint32_t tensor;
    std::uint64_t step;
  };

  BitFlips(const Program& program, Communicator& communicator) : program_(program), communicator_(communicator) {}

  void before(const proto::Step& /*step*/) override {}
  void after(const proto::Step& step) override;
  void broken_off(const proto::Step& /*step*/) override {}
  [[nodiscard]] bool sees_every_round() const override { return true; }

  const Program& program_;
  Communicator& communicator_;
  std::vector<Flip> flips_;  ///< For all replicas: each must know when shared weights change.
  Engine* engine_ = nullptr;
  std::vector<std::uint32_t> due_;  ///< Tensors to change when the current step writes them.
};

}  // namespace poprun
