#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/engine/engine.h"
#include "replica/loops/bit_flips.h"
#include "replica/loops/host_scalars.h"
#include "replica/loops/host_streams.h"
#include "replica/loops/inference_loop.h"
#include "replica/loops/loop.h"
#include "replica/loops/replay.h"
#include "replica/loops/step_labels.h"
#include "replica/loops/tensor_dump.h"
#include "replica/loops/training_state.h"
#include "replica/ports/host_stream.h"
#include "replica/program/host_contract.h"
#include "replica/program/program.h"

namespace poprun {

struct TrainingOptions {
  std::uint64_t total_steps = 0;
  std::uint64_t steps_per_epoch = 0;        ///< > 0.
  std::uint64_t micro_batches = 1;          ///< Micro-batches per step; > 0.
  std::uint64_t evaluation_batches = 0;     ///< Batches of this replica per evaluation; 0 for none.
  std::uint32_t evaluate_every_epochs = 1;  ///< 0 means only after the last step.
  LearningRate learning_rate;
  std::vector<DumpRequest> dumps;  ///< Tensors of replica 0 to dump.
  std::uint64_t replay_every = 0;  ///< Steps from one replay to the next (replay.h); 0: no replays.
  std::vector<proto::BitFlip> bit_flips = {};
  EngineOptions engine;
  bool scale_loss = false;               ///< The Program reads its loss scale from the host (compile.h).
  std::vector<LabelTensor> labels = {};  ///< Label tensors of a batch, in the batch's order.
  std::size_t batch_samples = 1;         ///< Samples per batch.
  /// If > 0, the Program weights micro-batches by labels, and divides the sum of their gradients over all replicas by
  /// this number.
  double weighted_mean_of = 0;
  std::size_t sharding_group = 0;               ///< Replicas that share sharded variables; 0 means all.
  std::optional<proto::HostState> resume = {};  ///< State of the checkpoint to resume from.
};

/// One replica's run of a training job. It loads, trains, evaluates and saves, in lock-step with the other replicas. If
/// the job is asked to drain (ProgressSink::begin_part), all replicas stop before the same micro-batch or evaluation
/// batch, drop the current step or evaluation, and save the weights of the last step that all of them completed. That
/// state is also the last checkpoint, if checkpoints are taken; all other checkpoints are taken between steps, after
/// any evaluation due there.
class TrainingLoop final : private HostIo {
 public:
  /// `program` and everything that `ports` refers to must outlive the loop.
  TrainingLoop(const Program& program, const TrainingOptions& options, const LoopPorts& ports);

  /// Runs the job. Errors: those of engine, communicator and streams; kBug if the Program violates host_contract.h.
  Result<LoopResult> run();

 private:
  Status write(const std::string& stream, const StreamPart& part) override;
  Status read(const std::string& stream, const StreamPart& part) override;

  [[nodiscard]] StepControl control() const;
  std::unique_ptr<HostStream> open_parts(JobStream stream);
  Status begin_part();
  Status save(std::span<const HostTensor> tensors);

  Status plan_observers();
  Status resume(Engine& engine);
  Status train(Engine& engine);
  Status store(Engine& engine, bool evaluation_due);
  void end_step(Engine& engine, const WallSeconds& before, double begin);
  Status train_step(Engine& engine);
  Status run_step(Engine& engine);
  Status note_unequal_labels();
  void report_note(const Note& note);
  Status evaluate(Engine& engine);
  void tell_watcher(Pause pause, double began) const;
  [[nodiscard]] bool evaluation_due(bool last) const;
  [[nodiscard]] std::uint32_t epoch() const;
  [[nodiscard]] double seconds_since_first_step() const;
  [[nodiscard]] Elapsed elapsed(const Engine& engine) const;

  const Program& program_;
  TrainingOptions options_;
  LoopPorts ports_;
  StepLabels labels_;
  std::unique_ptr<HostStream> train_;
  BatchWindow batches_;                       ///< Batches of `train_`.
  std::optional<EvaluationPass> evaluation_;  ///< The current evaluation.
  StepOutcome outcome_;                       ///< Outcome of the last step.
  StatisticsBackup statistics_;               ///< Statistics after the last complete step.
  TrainingState state_;
  LossScale loss_scale_;
  std::optional<TensorDump> dump_;   ///< Empty if no dump was requested.
  std::unique_ptr<BitFlips> flips_;  ///< Null if no bit is flipped.
  std::unique_ptr<Replay> replay_;   ///< Null if no step is replayed.
  BatchWindow* served_;              ///< The batches of stream kTrain.
  LoopResult result_;
  double fetching_seconds_ = 0;     ///< Waiting for data outside the engine.
  double saving_seconds_ = 0;       ///< Taking checkpoints.
  std::uint64_t reported_ = 0;      ///< Steps and evaluations reported so far.
  Cycles step_end_;                 ///< The device clock after the last complete step or evaluation.
  std::size_t saved_together_ = 0;  ///< Bytes of weights saved since the last barrier.
};

}  // namespace poprun
