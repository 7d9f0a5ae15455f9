#pragma once

#include <string>

#include "proto/answers.pb.h"

namespace poprun::launcher {

/// Formats the answer of `poprun-emu scale` in 80 columns: for weak and for strong scaling, a row for each number of
/// replicas, with the parts of its step in percent, followed by the memory of the fullest IPU. `ipu` is the name of the
/// device.
std::string scaling_tables(const proto::ScaleAnswer& answer, const std::string& ipu);

}  // namespace poprun::launcher
