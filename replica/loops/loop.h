#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/units.h"
#include "replica/engine/engine.h"
#include "replica/loops/host_streams.h"
#include "replica/ports/checkpoint_store.h"
#include "replica/ports/communicator.h"
#include "replica/ports/host_stream.h"
#include "replica/ports/reporter.h"
#include "replica/program/host_contract.h"
#include "replica/program/program.h"

/// Inputs and results of the loops in this room, and how each of them begins.
namespace poprun {

/// This replica's stream kTrain or kTest, from batch `first` on.
using StreamFactory = std::function<std::unique_ptr<HostStream>(JobStream stream, std::uint64_t first)>;

/// Looks on while a training loop runs.
class StepWatcher {
 public:
  StepWatcher() = default;
  StepWatcher(const StepWatcher&) = delete;
  StepWatcher& operator=(const StepWatcher&) = delete;
  virtual ~StepWatcher() = default;

  /// Around each training step `step`, from 1. May set the engine's observer for it.
  virtual void begin(std::uint64_t step, Engine& engine) = 0;
  virtual void end(const StepReport& report, Engine& engine) = 0;
};

/// Everything that a loop needs besides its Program. All references must outlive the loop.
struct LoopPorts {
  Communicator& communicator;
  ProgressSink& progress;
  Reporter* reporter;  ///< Null on every replica but the first.
  /// Needed on the first replica only, where the Program loads weights from the host; has all that it reads.
  const HostWeights& initial_weights;
  /// A loop asks for the first stream that it needs in its constructor, so that batches travel while the engine is
  /// prepared.
  StreamFactory streams;
  std::span<const std::span<std::byte>> memory = {};  ///< As Engine::create's.
  StepWatcher* watcher = nullptr;                     ///< Null for none.
  CheckpointStore* checkpoints = nullptr;             ///< Null: none are taken.
  CheckpointSource* state = nullptr;                  ///< On the first replica of a job that goes on from one.
};

/// The work of one replica, and the time that it took.
struct LoopResult {
  std::uint64_t steps = 0;          ///< Training steps.
  bool drained = false;             ///< Stopped before its end, as it was asked to.
  std::uint64_t resumed_after = 0;  ///< The step of the checkpoint that it went on from; 0: none.
  double earlier_seconds = 0;       ///< Wall, from the first step to that checkpoint.
  std::uint64_t skipped_steps = 0;  ///< Without effect, since a gradient was not finite.
  double loss_scale = 0;            ///< The last one; 0 if the host does not scale the loss.
  StepReport last_step;
  EvaluationReport last_evaluation;  ///< items is 0 if none ran.
  double training_seconds = 0;       ///< Wall, in training steps. Inference has evaluation only.
  double evaluation_seconds = 0;
  WallSeconds wall;                                 ///< In training steps; in inference in all batches.
  Cycles device_time;                               ///< Everything after function "load", except for "save".
  std::vector<Bytes> high_water;                    ///< By IPU: of the images of its tensors.
  std::vector<Bytes> streaming_high_water;          ///< By IPU: of its Streaming Memory.
  std::vector<std::vector<Bytes>> tile_high_water;  ///< By IPU and tile; empty: no layout of tiles.
  std::string stray_index;                          ///< As the engine's.
  std::vector<std::string> notes;                   ///< Found while running, for the user.
  double first_step_began = 0;                      ///< Seconds of the steady clock.
};

/// Seconds of the steady clock.
double now_seconds();

/// An engine after function "load", its clocks at zero. As long as it lives it tells `ports.progress` what it waits
/// for, in step `step`. `host` and `step` must outlive it.
Result<std::unique_ptr<Engine>> load_engine(const Program& program, const LoopPorts& ports, HostIo& host,
                                            const EngineOptions& options, const std::uint64_t& step);

}  // namespace poprun
