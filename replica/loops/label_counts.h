#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "replica/ports/host_stream.h"

namespace poprun {

/// A tensor of labels in the batches of a host stream.
struct LabelTensor {
  std::string name;        ///< Name in the dataset.
  std::size_t field = 0;   ///< Index among a batch's tensors.
  bool is_integer = true;  ///< i32: labels >= 0 count. Otherwise f32: samples without a NaN count.
};

/// Counts the labels in one replica's batches over which the models' losses are means (see softmax_cross_entropy, and
/// onnx/job_model.cc for numeric labels).
class LabelCounts {
 public:
  /// Batches have `samples` samples and are computed in `pieces` pieces.
  LabelCounts(std::vector<LabelTensor> tensors, std::size_t samples, std::size_t pieces);

  /// Resets the sums.
  void begin_step();

  /// Counts the labels of a batch. Does not check the sizes of its tensors.
  void add(const HostBatch& batch);

  /// Labels per tensor in the step so far.
  [[nodiscard]] const std::vector<std::uint64_t>& sums() const { return sums_; }

  /// The fewest and the most labels of a piece since the beginning.
  struct Range {
    std::uint32_t fewest = 0;
    std::uint32_t most = 0;
  };
  /// By tensor.
  [[nodiscard]] const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<LabelTensor> tensors_;
  std::size_t samples_;
  std::size_t pieces_;
  bool empty_ = true;
  std::vector<std::uint64_t> sums_;
  std::vector<Range> ranges_;
};

}  // namespace poprun
