#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "replica/ports/host_stream.h"

namespace poprun {

/// A tensor of labels in the batches of a host stream.
struct LabelTensor {
  std::string name;        ///< The dataset's.
  std::size_t field = 0;   ///< Its place among a batch's tensors.
  bool is_integer = true;  ///< i32: those from 0 on count. Otherwise f32: samples without a NaN do.
};

/// Counts the labels that count in one replica's batches: those of which the models' losses are the mean
/// (softmax_cross_entropy, and onnx/job_model.cc for numbers).
class LabelCounts {
 public:
  /// Batches have `samples` samples and are computed in `pieces`.
  LabelCounts(std::vector<LabelTensor> tensors, std::size_t samples, std::size_t pieces);

  /// Forgets the sums.
  void begin_step();

  /// A batch whose tensors have other sizes than they should counts as if it were cut off.
  void add(const HostBatch& batch);

  /// By tensor, in the step so far.
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
