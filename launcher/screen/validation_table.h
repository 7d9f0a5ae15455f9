#pragma once

#include <string>
#include <vector>

#include "launcher/validation/comparison.h"

namespace poprun::launcher {

/// Formats what `poprun-emu validate` prints, in 80 columns unless names are longer: a row per published result, the
/// errors of each family, the scaling within each series, and the fitted numbers of the device clock
/// (replica/device/calibration.h).
std::string validation_table(const std::vector<validation::Row>& rows);

}  // namespace poprun::launcher
