#pragma once

/// Figures fitted to measurements, one per file, kept apart from published ones (device.h).
namespace poprun {

/// Host time of one call of a Program's function, in addition to the device step: dispatch of the framework,
/// synchronisation, and fetching results.
///
/// Fitted: the constant c of `a * convolutions + b * batch + c`, the wall time of a batch in Graphcore's table 2.1
/// (ResNeXt-50 inference through PyTorch, one call per batch), from the rows of batches 2, 6, 10, 14 and 18 (poplibs,
/// lib/poplin/ConvPlan.cpp).
inline constexpr double kHostCallSeconds = 1.85e-3;

}  // namespace poprun
