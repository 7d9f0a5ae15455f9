#pragma once

#include <string>

#include "replica/base/error.h"
#include "replica/program/program.h"

namespace poprun {

/// Where most bytes of the IPU's memory are live: "step 12 of the Program (train: relu 'relu1')".
std::string worst_place(const Program& program, int ipu);

/// Success where every IPU's plan fits its memory. Otherwise kOutOfMemory: a first line with what
/// was needed, had (also as facts) and would help, then a table of what is live at the worst step,
/// always-live apart from not-always-live, largest first. `micro_batch_size` is the present one,
/// for the remedy.
Status check_fits(const Program& program, std::uint32_t micro_batch_size);

}  // namespace poprun
