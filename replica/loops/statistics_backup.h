#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/engine/engine.h"
#include "replica/program/program.h"

namespace poprun {

/// Running statistics are all that a micro-batch changes of what is saved. Kept from the beginning
/// of each step, they make a step that was dropped half way leave nothing behind.
class StatisticsBackup {
 public:
  /// `program` must outlive this.
  explicit StatisticsBackup(const Program& program);

  /// A step begins: takes the statistics as they are. Costs a copy of them, some KiB a
  /// normalisation.
  void take(const Engine& engine);
  /// The step is whole: what the tensors hold now counts.
  void forget() { taken_ = false; }

  /// The bytes of a tensor as the last whole step left them; `bytes` are what it holds now.
  [[nodiscard]] std::span<const std::byte> of(std::string_view tensor,
                                              std::span<const std::byte> bytes) const;

 private:
  struct Statistic {
    std::uint32_t tensor;
    std::vector<std::byte> bytes;
  };
  std::map<std::string, Statistic, std::less<>> statistics_;  ///< By name.
  bool taken_ = false;
};

}  // namespace poprun
