#pragma once

/// Figures that are fitted to measurements, one question per file, apart from what is published (device.h).
namespace poprun {

/// Host time of one call of a Program's function, besides the device's step: dispatch of the framework,
/// synchronisation, and fetching results.
///
/// Fitted: the constant c of `a * convolutions + b * batch + c`, the wall time of a batch in Graphcore's table 2.1
/// (ResNeXt-50 inference through PyTorch, one call for each batch), by the rows of batches 2, 6, 10, 14 and 18
/// (poplibs, lib/poplin/ConvPlan.cpp).
inline constexpr double kHostCallSeconds = 1.85e-3;

}  // namespace poprun
