#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/note.h"
#include "replica/base/units.h"
#include "replica/engine/engine.h"
#include "replica/loops/host_streams.h"
#include "replica/ports/checkpoint_store.h"
#include "replica/ports/communicator.h"
#include "replica/ports/host_stream.h"
#include "replica/ports/reporter.h"
#include "replica/program/host_contract.h"
#include "replica/program/program.h"

/// The inputs and results of all loops, and the code that starts each of them.
namespace poprun {

/// Opens this replica's stream kTrain or kTest at batch `first`.
using StreamFactory = std::function<std::unique_ptr<HostStream>(JobStream stream, std::uint64_t first)>;

/// Work of a training loop between two steps.
enum class Pause : std::uint8_t { kEvaluation, kCheckpoint };

/// Observes the steps of a training loop.
class StepWatcher {
 public:
  StepWatcher() = default;
  StepWatcher(const StepWatcher&) = delete;
  StepWatcher& operator=(const StepWatcher&) = delete;
  virtual ~StepWatcher() = default;

  /// Called before and after each training step; `step` counts from 1. The watcher may set the engine's observer for
  /// the step.
  virtual void begin(std::uint64_t step, Engine& engine) = 0;
  virtual void end(const StepReport& report, Engine& engine) = 0;

  /// Called after an evaluation, or after a checkpoint was taken. `began` is a time of now_seconds().
  virtual void paused(Pause /*pause*/, double /*began*/) {}
};

/// Everything that a loop needs besides its Program. All references must outlive the loop.
struct LoopPorts {
  Communicator& communicator;
  ProgressSink& progress;
  Reporter* reporter;  ///< Null except on the first replica.
  /// Needed only on the first replica, if the Program loads weights from the host. Contains all weights that it loads.
  const HostWeights& initial_weights;
  /// A loop opens its first stream in its constructor, so that batches arrive while the engine is prepared.
  StreamFactory streams;
  /// Opens the stream kTrain of another replica at batch `first`. Needed only to replay steps.
  std::function<std::unique_ptr<HostStream>(ReplicaId peer, std::uint64_t first)> peer_stream = {};
  std::span<const std::span<std::byte>> memory = {};  ///< See Engine::create.
  StepWatcher* watcher = nullptr;                     ///< Null if there is none.
  CheckpointStore* checkpoints = nullptr;             ///< Null if none are taken.
  CheckpointSource* state = nullptr;                  ///< Checkpoint to resume from, on the first replica.
};

/// The work of one replica, and the time that it took.
struct LoopResult {
  std::uint64_t steps = 0;          ///< Training steps.
  bool drained = false;             ///< Whether the replica stopped early on request.
  std::uint64_t resumed_after = 0;  ///< Step of the checkpoint from which it resumed; 0 if none.
  double earlier_seconds = 0;       ///< Wall time from the first step to that checkpoint.
  std::uint64_t skipped_steps = 0;  ///< Steps without effect because a gradient was not finite.
  double loss_scale = 0;            ///< Last loss scale; 0 if the host does not scale the loss.
  StepReport last_step;
  EvaluationReport last_evaluation;  ///< `items` is 0 if none was run.
  double training_seconds = 0;       ///< Wall time in training steps; 0 in inference.
  double evaluation_seconds = 0;
  WallSeconds wall;                                 ///< In training steps; for inference, in all batches.
  Cycles device_time;                               ///< Device time after function "load" and before "save".
  std::vector<Bytes> high_water;                    ///< For each IPU: peak of the images of its tensors.
  std::vector<Bytes> streaming_high_water;          ///< For each IPU: peak of its Streaming Memory.
  std::vector<std::vector<Bytes>> tile_high_water;  ///< For each IPU and tile; empty without a tile layout.
  std::string stray_index;                          ///< See Engine::stray_index.
  std::vector<Note> notes;                          ///< Diagnostics of the run, for the user.
  double first_step_began = 0;                      ///< Time of the steady clock, in seconds.
};

/// Returns the time of the steady clock in seconds.
double now_seconds();

/// Creates an engine, runs function "load" and sets its clocks to zero. The engine reports to `ports.progress` what it
/// is waiting for, and in which step. `host` and `step` must outlive it.
Result<std::unique_ptr<Engine>> load_engine(const Program& program, const LoopPorts& ports, HostIo& host,
                                            const EngineOptions& options, const std::uint64_t& step);

}  // namespace poprun
