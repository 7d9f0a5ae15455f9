#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "replica/base/error.h"

/// What a job's Program and its host agree on: the functions that the host runs, the streams that
/// it serves, and what goes through the streams of a step. The compiler builds them and
/// replica/loops plays the host, both by the names of this file; compiler/compile.h says what each
/// function does.
namespace poprun {

enum class JobFunction : std::uint8_t {
  kLoad,
  kTrain,
  kEvaluateBegin,
  kEvaluate,
  kEvaluateEnd,
  kSave,
};

enum class JobStream : std::uint8_t {
  kControl,     ///< In, at the beginning of a training step: StepControl.
  kTrain,       ///< In: a micro-batch to train on, in the order of the dataset's tensors.
  kTest,        ///< In: likewise, to evaluate or infer.
  kStep,        ///< Out, at the end of a training step: StepOutcome.
  kEvaluation,  ///< Out, at the end of an evaluation: EvaluationOutcome.
  kOutputs,     ///< Out: one tensor, the prediction for the batch of kTest.
  kWeights,     ///< In: what the model starts from, where the host has it. Out: weights.
};

/// As the Program calls it.
const char* name_of(JobFunction function);
const char* name_of(JobStream stream);

/// A tensor of a stream, or the field of a record that goes through one.
struct NamedBytes {
  std::string_view name;
  std::span<std::byte> bytes;
};

/// What the host says before a training step. Each field is a tensor f32[].
struct StepControl {
  static constexpr const char* kLearningRate = "learning-rate";
  static constexpr const char* kUpdate = "step";
  static constexpr const char* kLossScale = "loss-scale";

  float learning_rate = 0;
  /// Number of the update from 1; steps without effect do not count. Exact up to 2^24, far beyond
  /// the steps that bias corrections can tell from endless ones.
  float update = 0;
  std::optional<float> loss_scale = {};  ///< Where the host finds it as training goes.

  /// Those that there are, in the stream's order.
  std::vector<NamedBytes> fields();
};

/// Results over all items of a step (means over the replicas) or of an evaluation (sums), as one
/// tensor f32[3]. All are zero where nothing is scored.
struct Metrics {
  float losses = 0;  ///< Sum.
  float correct = 0;
  float items = 0;

  /// By item; 0 where there is none.
  [[nodiscard]] double loss() const;
  [[nodiscard]] double accuracy() const;
};

/// What the Program says after a training step, equal on all replicas.
struct StepOutcome {
  static constexpr const char* kMetrics = "train.metrics";
  static constexpr const char* kGradientFactor = "gradient-factor";

  Metrics metrics = {};
  /// Where the host finds the loss scale: 0 where a gradient was not finite and the step changed
  /// nothing.
  std::optional<float> gradient_factor = {};

  std::vector<NamedBytes> fields();
};

/// What the Program says after an evaluation, equal on all replicas.
struct EvaluationOutcome {
  static constexpr const char* kMetrics = "evaluate/metrics";

  Metrics metrics = {};

  std::vector<NamedBytes> fields();
};

/// A record's fields into the tensors of its stream, by name, and back.
///
/// Errors: kBug, a field without a tensor of its name and size, or a tensor without a field; names
/// it.
Status pack(JobStream stream, std::span<const NamedBytes> fields,
            std::span<const NamedBytes> tensors);
Status unpack(JobStream stream, std::span<const NamedBytes> fields,
              std::span<const NamedBytes> tensors);

}  // namespace poprun
