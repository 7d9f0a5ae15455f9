#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/engine/engine.h"
#include "replica/loops/host_scalars.h"
#include "replica/loops/host_streams.h"
#include "replica/loops/inference_loop.h"
#include "replica/loops/label_counts.h"
#include "replica/loops/loop.h"
#include "replica/loops/tensor_dump.h"
#include "replica/loops/training_state.h"
#include "replica/ports/host_stream.h"
#include "replica/program/host_contract.h"
#include "replica/program/program.h"

namespace poprun {

struct TrainingOptions {
  std::uint64_t total_steps = 0;
  std::uint64_t steps_per_epoch = 0;        ///< > 0.
  std::uint64_t micro_batches = 1;          ///< In a step; > 0.
  std::uint64_t evaluation_batches = 0;     ///< This replica's, a whole test set; 0: none.
  std::uint32_t evaluate_every_epochs = 1;  ///< 0: only after the last step.
  LearningRate learning_rate;
  std::vector<DumpRequest> dumps;  ///< Replica 0's tensors.
  EngineOptions engine;
  bool scale_loss = false;               ///< The Program takes its loss scale from the host (compile.h).
  std::vector<LabelTensor> labels = {};  ///< Of batches, in their order.
  std::size_t batch_samples = 1;         ///< In a batch.
  /// > 0: the Program weights its micro-batches by their labels, and divides the sum of their gradients over all
  /// replicas by this.
  double weighted_mean_of = 0;
  std::size_t sharding_group = 0;               ///< Replicas that divide variables among them; 0: all.
  std::optional<proto::HostState> resume = {};  ///< Where the job goes on from a checkpoint.
};

/// One replica's run of a training job: loads, trains, evaluates, saves, in lock-step with the others.
///
/// Asked to drain (ProgressSink::begin_part), all replicas stop before the same micro-batch, or batch of an evaluation,
/// and save the weights of the last step that all have completed: what a step or an evaluation did by then is dropped.
/// This state is also the last checkpoint, if any are taken; the others lie between steps, after the evaluation that
/// is due there.
class TrainingLoop final : private HostIo {
 public:
  /// `program` and what `ports` refers to must outlive the loop.
  TrainingLoop(const Program& program, const TrainingOptions& options, const LoopPorts& ports);

  /// Runs the job. Errors: those of engine, communicator, host streams; kBug, the Program does not keep to
  /// program/host_contract.h.
  Result<LoopResult> run();

 private:
  Status write(const std::string& stream, const StreamPart& part) override;
  Status read(const std::string& stream, const StreamPart& part) override;

  [[nodiscard]] StepControl control() const;
  std::unique_ptr<HostStream> open_parts(JobStream stream);
  Status begin_part();
  Status save(std::span<const HostTensor> tensors);

  Status plan_dump();
  Status resume(Engine& engine);
  Status train(Engine& engine);
  Status store(Engine& engine, bool evaluation_due);
  void end_step(Engine& engine, const WallSeconds& before, double begin);
  Status train_step(Engine& engine);
  Status run_step(Engine& engine);
  Status share_labels();
  Status check_labels() const;
  Status note_unequal_labels();
  Status evaluate(Engine& engine);
  [[nodiscard]] bool evaluation_due(bool last) const;
  [[nodiscard]] std::uint32_t epoch() const;
  [[nodiscard]] double seconds_since_first_step() const;

  const Program& program_;
  TrainingOptions options_;
  LoopPorts ports_;
  LabelCounts labels_;                                ///< Of this replica.
  std::vector<StepControl::MeanLabels> mean_labels_;  ///< Of the step, where the Program asks for them.
  double labels_of_step_ = 0;                         ///< Of all replicas, of the first tensor.
  std::unique_ptr<HostStream> train_;
  BatchWindow batches_;                       ///< Those of `train_`.
  std::optional<EvaluationPass> evaluation_;  ///< The one under way.
  StepOutcome outcome_;                       ///< The last step's.
  StatisticsBackup statistics_;               ///< As the last whole step left them.
  TrainingState state_;
  LossScale loss_scale_;
  std::optional<TensorDump> dump_;  ///< Where one was asked for.
  LoopResult result_;
  std::uint64_t reported_ = 0;      ///< Steps and evaluations.
  Cycles step_end_;                 ///< The device clock after the last whole step or evaluation.
  std::size_t saved_together_ = 0;  ///< Bytes of weights since all replicas waited for each other.
};

}  // namespace poprun
