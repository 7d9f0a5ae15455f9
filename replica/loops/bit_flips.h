#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/engine/engine.h"
#include "replica/ports/communicator.h"
#include "replica/program/program.h"

namespace poprun {

/// A bit that is to be wrong on one replica.
struct BitFlip {
  std::uint32_t replica = 0;
  std::string tensor;      ///< Name of a tensor that training steps use.
  std::uint64_t step = 0;  ///< Counted from 1.
};

/// Inverts bits of tensors, as faults of memories or processors do, to show what a job makes of them. A flip changes
/// one bit of the tensor's middle element (Engine::flip_bit), once:
///
///   weights, state, statistics   before the step. If replicas of a host share the image, all of them see it.
///   other tensors                when the step writes them for the first time
class BitFlips final : private StepObserver {
 public:
  /// Chooses the flips of this replica. `program` and `communicator` must outlive this. Errors: kUsage if no training
  /// step uses such a tensor, or if the job has no such replica or step.
  static Result<std::unique_ptr<BitFlips>> create(const Program& program, const std::vector<BitFlip>& flips,
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

  void flip(std::uint32_t tensor) const;

  const Program& program_;
  Communicator& communicator_;
  std::vector<Flip> flips_;  ///< Of all replicas.
  Engine* engine_ = nullptr;
  std::vector<std::uint32_t> due_;  ///< Tensors to change when the current step writes them.
};

}  // namespace poprun
