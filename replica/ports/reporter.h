#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "replica/base/error.h"
#include "replica/base/note.h"
#include "replica/base/units.h"

namespace poprun {

/// Wall seconds since this run of the loop began to train, and how many of them the replica has waited.
struct Elapsed {
  double wall = 0;
  double data = 0;    ///< In stream steps, including waiting for data.
  double saving = 0;  ///< Taking checkpoints, including waiting until the previous one is stored.
};

/// Results of one training step: means over its global batch.
struct StepReport {
  std::uint64_t step = 0;   ///< From 1.
  std::uint32_t epoch = 0;  ///< From 1.
  double loss = 0;
  double accuracy = 0;        ///< 0 to 1; -1 if the loss has no accuracy.
  double wall_seconds = 0;    ///< Since the first step began.
  double device_seconds = 0;  ///< Device clock since the first step began.
  double learning_rate = 0;
  Elapsed elapsed = {};
};

/// Results of one evaluation, in which each test item counts once. Fields are as in StepReport.
struct EvaluationReport {
  std::uint64_t step = 0;
  std::uint32_t epoch = 0;
  double loss = 0;
  double accuracy = 0;
  std::uint64_t items = 0;
  double wall_seconds = 0;
  double device_seconds = 0;
  Elapsed elapsed = {};
};

/// Destination of the job's results, which only replica 0 reports, in order. It belongs to one thread and may buffer.
class Reporter {
 public:
  Reporter() = default;
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;
  virtual ~Reporter() = default;

  virtual void step(const StepReport& report) = 0;
  virtual void evaluation(const EvaluationReport& report) = 0;

  /// Reports one line about the job for people.
  virtual void note(const proto::Note& note) = 0;

  /// Reports a trained tensor: row-major little-endian elements of `type`, "f32" or "f16". Tensors are sorted by name.
  virtual void weights(std::string_view name, std::string_view type, std::span<const std::int64_t> shape,
                       std::span<const std::byte> data) = 0;

  /// Reports a tensor's value in training step `step`, before that step's report. `type` is the element type ("f32"),
  /// `data` is row-major and little-endian.
  virtual void dump(std::uint64_t step, std::string_view name, std::string_view type,
                    std::span<const std::int64_t> shape, std::span<const std::byte> data) = 0;
};

/// Destination of replicas' activity, for heartbeats and post-mortems. Called often, so it must be cheap and, except
/// for `begin_part`, must not block. Replicas may call it concurrently.
class ProgressSink {
 public:
  ProgressSink() = default;
  ProgressSink(const ProgressSink&) = delete;
  ProgressSink& operator=(const ProgressSink&) = delete;
  virtual ~ProgressSink() = default;

  /// Records that the replica starts `activity` after `step` completed training steps.
  virtual void progress(ReplicaId replica, std::uint64_t step, std::string_view activity) = 0;

  /// Records wall seconds spent in operators, summed over all of the replica's `steps` training steps.
  virtual void operators(ReplicaId replica, std::uint64_t steps, double seconds) = 0;

  /// Makes the next `parts` parts a unit: replicas exchange only after the last of them, and a job that stops earlier
  /// drops them all.
  virtual void begin_parts(ReplicaId replica, std::uint64_t parts) = 0;

  /// Called before each part of a job (a micro-batch, or a batch of an evaluation), when its data is available. Parts
  /// come in the same order on all replicas. Returns false if a job that was asked to drain stops here; all replicas
  /// then stop before the same exchange. The call blocks only after that request, until the launcher has heard from all
  /// replicas.
  [[nodiscard]] virtual bool begin_part(ReplicaId replica) = 0;
};

/// Destination of a replica's outputs, batch by batch. Belongs to one thread.
class Outfeed {
 public:
  Outfeed() = default;
  Outfeed(const Outfeed&) = delete;
  Outfeed& operator=(const Outfeed&) = delete;
  virtual ~Outfeed() = default;

  /// Sends the outputs of batch `batch` of the stream "test": one row per sample. `type` is the element type ("f32"),
  /// `shape` is [micro-batch, ...], `data` is row-major and little-endian. Blocks while the host accepts no more
  /// outputs, so that little is buffered here. Errors: kInfrastructure if the launcher no longer accepts outputs.
  virtual Status push(std::uint64_t batch, std::string_view type, std::span<const std::int64_t> shape,
                      std::span<const std::byte> data) = 0;
};

}  // namespace poprun
