#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/engine/engine.h"
#include "replica/loops/learning_rate.h"
#include "replica/loops/loss_scale.h"
#include "replica/loops/tensor_dump.h"
#include "replica/ports/communicator.h"
#include "replica/ports/host_stream.h"
#include "replica/ports/outfeed.h"
#include "replica/ports/reporter.h"
#include "replica/program/program.h"

namespace poprun {

/// Weights by name, row-major little-endian float32 bytes, whatever the model stores.
using HostWeights = std::map<std::string, std::string, std::less<>>;

struct TrainingOptions {
  bool inference = false;  ///< One evaluation whose outputs are pushed, instead of training.
  std::uint64_t inference_items = 0;  ///< Of all replicas.
  std::uint64_t total_steps = 0;
  std::uint64_t steps_per_epoch = 0;        ///< > 0.
  std::uint64_t evaluation_batches = 0;     ///< Of this replica, a whole test set; 0: none.
  std::uint32_t evaluate_every_epochs = 1;  ///< 0: only after the last step.
  LearningRate learning_rate;
  std::vector<DumpRequest> dumps;  ///< Of replica 0's tensors.
  EngineOptions engine;
  bool scale_loss = false;  ///< The Program takes its loss scale from the host (compile.h).
};

/// What one replica did and took.
struct TrainingResult {
  std::uint64_t steps = 0;
  bool drained = false;
  std::uint64_t skipped_steps = 0;  ///< Without effect, since a gradient was not finite.
  double loss_scale = 0;            ///< The last one; 0 where the host does not scale the loss.
  StepReport last_step;
  EvaluationReport last_evaluation;  ///< items is 0 where none ran.
  double training_seconds = 0;       ///< Wall, in training steps. Inference has evaluation only.
  double evaluation_seconds = 0;
  WallSeconds wall;               ///< Of training steps; in inference of all batches.
  proto::Cost device_cost;        ///< Of everything after "load".
  std::vector<Bytes> high_water;  ///< By IPU.
  double first_step_began = 0;    ///< Seconds of the steady clock.
};

/// One replica's run of a job: loads, trains, evaluates, saves, in lock-step with the others; or
/// loads and infers.
///
/// Asked to drain (by the ProgressSink of any replica), all replicas stop after the same step.
class TrainingLoop final : private HostIo {
 public:
  /// The host stream of "train" or "test", from its first batch. The loop asks for the first one it
  /// needs in its constructor, so that batches travel while the engine is prepared.
  using StreamFactory = std::function<std::unique_ptr<HostStream>(const std::string& stream)>;

  /// `reporter` is null on every replica but the first. `initial_weights` is needed on the first
  /// replica only, where the Program loads weights from the host, and has all that it reads;
  /// `outfeed` is needed in inference. All must outlive the loop.
  TrainingLoop(const Program& program, const TrainingOptions& options, Communicator& communicator,
               ProgressSink& progress, Reporter* reporter, const HostWeights& initial_weights,
               StreamFactory streams, Outfeed* outfeed = nullptr);

  /// Runs the job. Errors: those of engine, communicator, host streams.
  Result<TrainingResult> run();

 private:
  Status write(const std::string& stream, std::span<const HostTensor> tensors) override;
  Status read(const std::string& stream, std::span<const HostTensor> tensors) override;

  Status write_batch(HostStream& source, std::span<const HostTensor> tensors);
  Status write_control(std::span<const HostTensor> tensors);
  Status write_weights(std::span<const HostTensor> tensors);
  Status push_outputs(const HostTensor& tensor);

  Status plan_dump();
  Status train(Engine& engine);
  Status train_step(Engine& engine);
  Status evaluate(Engine& engine);
  [[nodiscard]] bool evaluation_due(bool last) const;
  [[nodiscard]] std::uint32_t epoch() const;
  [[nodiscard]] double seconds_since_first_step() const;

  const Program& program_;
  TrainingOptions options_;
  Communicator& communicator_;
  ProgressSink& progress_;
  Reporter* reporter_;
  const HostWeights& initial_weights_;
  StreamFactory streams_;
  Outfeed* outfeed_;
  std::unique_ptr<HostStream> train_;
  std::unique_ptr<HostStream> test_;
  std::uint64_t test_batch_ = 0;  ///< That `evaluate` is at.
  std::vector<float> metrics_;    ///< Last read of stream "step" or "evaluation".
  float drain_ = 0;               ///< Mean over replicas of the drain request.
  LossScale loss_scale_;
  float gradient_factor_ = 1;       ///< Of the last step; 0 where it was skipped.
  std::optional<TensorDump> dump_;  ///< Where one was asked for.
  TrainingResult result_;
};

}  // namespace poprun
