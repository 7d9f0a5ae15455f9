#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "replica/base/error.h"

/// The contract between a job's Program and its host: the functions that the host runs, the streams that it serves, and
/// the records that pass through a step's streams. The compiler builds the Program and replica/loops plays the host,
/// both with the names and the field order of this file; compiler/compile.h describes each function.
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
  kTest,        ///< In: a micro-batch to evaluate or infer.
  kStep,        ///< Out, at the end of a training step: StepOutcome.
  kEvaluation,  ///< Out, at the end of an evaluation: EvaluationOutcome.
  kOutputs,     ///< Out: one tensor, the prediction for the batch of kTest.
  kWeights,     ///< In: initial weights, if the host has any. Out: weights.
};

const char* name_of(JobFunction function);
const char* name_of(JobStream stream);

/// A tensor of a stream, or a field of a record that passes through a stream.
struct NamedBytes {
  std::string_view name;
  std::span<std::byte> bytes;
};

/// Returns whether a dataset's tensor of this name contains labels, which hostio/streams pads with "no label".
bool is_labels(std::string_view name);

/// Values that the host sends before a training step. Each field is a tensor f32[].
struct StepControl {
  static constexpr const char* kLearningRate = "learning-rate";
  static constexpr const char* kUpdate = "step";
  static constexpr const char* kLossScale = "loss-scale";

  float learning_rate = 0;
  /// Number of the update, counted from 1; steps without effect do not count. The value is exact up to 2^24, which is
  /// enough because bias corrections converge sooner.
  float update = 0;
  std::optional<float> loss_scale = {};  ///< Set if the host adjusts it during training.

  /// The mean number of labels that count, per micro-batch of the step.
  struct MeanLabels {
    explicit MeanLabels(std::string of) : labels(std::move(of)), name("mean-" + labels) {}

    std::string labels;  ///< Name of the dataset's tensor.
    std::string name;    ///< Name of the field.
    float count = 1;
  };
  /// For each tensor of labels, in the dataset's order, if the job weights micro-batches by labels.
  std::vector<MeanLabels> mean_labels = {};

  /// Returns the fields that are present, in stream order.
  std::vector<NamedBytes> fields();
};

/// A number, stored as the sum of parts (see `accumulate_metrics` in replica/ops).
struct PartedSum {
  std::array<float, 3> parts = {};

  [[nodiscard]] double value() const;
};

/// Results over the items of a step (means over replicas) or of an evaluation (sums), stored as f32[3,3]. They are zero
/// if nothing is scored.
struct Metrics {
  PartedSum losses;
  PartedSum correct;
  PartedSum items;

  /// Return the mean per item, or 0 if there are no items.
  [[nodiscard]] double loss() const;
  [[nodiscard]] double accuracy() const;
};

/// Values that the Program sends after a training step, the same on all replicas.
struct StepOutcome {
  static constexpr const char* kMetrics = "train.metrics";
  static constexpr const char* kGradientFactor = "gradient-factor";

  Metrics metrics = {};
  /// Set if the host adjusts the loss scale. The factor is below 0 if a gradient was not finite; the step then changed
  /// nothing.
  std::optional<float> gradient_factor = {};

  std::vector<NamedBytes> fields();
};

/// Values that the Program sends after an evaluation, the same on all replicas.
struct EvaluationOutcome {
  static constexpr const char* kMetrics = "evaluate/metrics";

  Metrics metrics = {};

  std::vector<NamedBytes> fields();
};

/// Copies a record's fields to the tensors of its stream, and back. There are as many fields as tensors, in the same
/// order. (Tensors are not found by name: a weight of the model may be called `step`.) Errors: kBug if the numbers or
/// the sizes of fields and tensors differ.
Status pack(JobStream stream, std::span<const NamedBytes> fields, std::span<const NamedBytes> tensors);
Status unpack(JobStream stream, std::span<const NamedBytes> fields, std::span<const NamedBytes> tensors);

}  // namespace poprun
