#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "replica/compiler/stages/balance.h"

namespace poprun {

/// What every possible stage needs of its IPU's memory.
///
///   bytes of its layers + rate * activations of its layers + rest
///
/// Rate and rest are 0 until a split has been compiled, so the first estimate is low. Then they are
/// a stage's own, such that the latest measured split has its measured peaks: the difference counts
/// as activations, with a rate up to `in_flight`, and the rest stays with the stage. A stage of the
/// same layers as a measured one needs what was measured.
class StageBytes {
 public:
  /// Both must outlive this.
  StageBytes(const Balancing& balancing, std::span<const MeasuredSplit> measured);

  /// Layers [begin, end) as this stage.
  [[nodiscard]] std::int64_t operator()(std::size_t stage, std::size_t begin,
                                        std::size_t end) const;

 private:
  struct Correction {
    double rate = 0;
    std::int64_t rest = 0;
  };

  [[nodiscard]] std::int64_t estimate(const Correction& correction, std::size_t begin,
                                      std::size_t end) const;

  std::span<const MeasuredSplit> measured_;
  std::vector<std::int64_t> bytes_ = {0};  ///< Sums over the first 0, 1, ... layers.
  std::vector<std::int64_t> activations_ = {0};
  std::vector<Correction> corrections_;  ///< By stage.
};

}  // namespace poprun
