#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/note.h"
#include "replica/ports/communicator.h"
#include "replica/ports/host_stream.h"
#include "replica/program/host_contract.h"

/// The labels over which losses are averaged.
namespace poprun {

struct LabelTensor {
  std::string name;        ///< Name in the dataset.
  std::size_t field = 0;   ///< Index among a batch's tensors.
  bool is_integer = true;  ///< i32: labels >= 0 are counted. f32: every sample without a NaN is counted.
};

/// Counts, in one replica's batches, the labels over which the loss is averaged (see softmax_cross_entropy, and
/// onnx/job_model.cc for numeric labels).
class LabelCounts {
 public:
  /// Batches have `samples` samples and are computed in `pieces` pieces.
  LabelCounts(std::vector<LabelTensor> tensors, std::size_t samples, std::size_t pieces);

  /// Sets the sums to zero.
  void begin_step();

  /// Counts the labels of a batch. Does not check the sizes of its tensors.
  void add(const HostBatch& batch);

  /// Returns the number of labels of each tensor in the step so far.
  [[nodiscard]] const std::vector<std::uint64_t>& sums() const { return sums_; }

  /// The fewest and the most labels in any piece since the beginning.
  struct Range {
    std::uint32_t fewest = 0;
    std::uint32_t most = 0;
  };
  /// Returns the range of each tensor.
  [[nodiscard]] const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<LabelTensor> tensors_;
  std::size_t samples_;
  std::size_t pieces_;
  bool empty_ = true;
  std::vector<std::uint64_t> sums_;
  std::vector<Range> ranges_;
};

/// The labels of each training step, over all replicas.
class StepLabels {
 public:
  /// `samples` and `pieces`: see LabelCounts. `weighted_mean_of`: see TrainingOptions.
  StepLabels(const std::vector<LabelTensor>& tensors, std::size_t samples, std::size_t pieces, double weighted_mean_of);

  void begin_step() { counts_.begin_step(); }
  void add(const HostBatch& batch) { counts_.add(batch); }

  /// Returns whether the Program weights micro-batches by labels. It then needs their means before a step begins.
  [[nodiscard]] bool are_shared() const { return weighted_mean_of_ > 0; }

  /// Computes the mean number of labels per micro-batch, when all batches of the step have been added. Collective.
  Status share(Communicator& communicator);
  [[nodiscard]] const std::vector<StepControl::MeanLabels>& means() const { return means_; }

  /// Checks that the model's loss counts the same labels in step `step` of `replicas` replicas. Errors: kData.
  [[nodiscard]] Status check(const Metrics& metrics, std::size_t replicas, std::uint64_t step) const;

  /// Returns a note if the pieces of the data added so far have different numbers of labels although their losses are
  /// averaged. Collective.
  Result<std::optional<Note>> note_if_unequal(Communicator& communicator);
  /// Returns whether it has returned a note.
  [[nodiscard]] bool are_noted() const { return noted_; }

 private:
  LabelCounts counts_;
  double weighted_mean_of_;
  std::vector<StepControl::MeanLabels> means_;  ///< For the current step, if they are shared.
  double of_first_ = 0;                         ///< Labels of the first tensor in the current step.
  bool noted_ = false;
};

}  // namespace poprun
