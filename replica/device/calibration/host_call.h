#pragma once

/// Figures that are fitted to measurements, one question per file, apart from what is published (device.h).
namespace poprun {

/// What one call of a function of a Program takes on the host, besides the device's step: dispatch of the framework,
/// synchronisation, and fetching results.
///
/// Fitted: the constant c of `a * convolutions + b * batch + c`, the wall time of a batch in seed 003's table 2.1
/// (ResNeXt-50 inference through PyTorch, one call for each batch), by the rows of batches 2, 6, 10, 14 and 18 (ipu.md
/// 3: 1.85 ms; without the planner's term, 2.20 ms).
inline constexpr double kHostCallSeconds = 1.85e-3;

}  // namespace poprun
