#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace poprun {

enum class Storage : std::uint8_t {
  kOnChip,
  kOffChip,
  kAuto,  ///< Off the chip where the job does not fit otherwise.
};

/// Where tensors that outlive a micro-batch are kept, by kind. PopART's TensorLocationSettings.
struct LocationOptions {
  Storage weights = Storage::kOnChip;
  Storage optimizer_state = Storage::kOnChip;
  Storage accumulators = Storage::kOnChip;
  Storage activations = Storage::kOnChip;  ///< Those that wait in stashes.

  std::int64_t off_chip_elements_min = 2;  ///< Smaller tensors stay on the chip.

  /// For the tensors whose names match, instead of what is above; the last one that matches counts.
  struct Override {
    std::string tensors;  ///< ECMAScript.
    Storage storage = Storage::kOnChip;
  };
  std::vector<Override> overrides = {};
};

}  // namespace poprun
